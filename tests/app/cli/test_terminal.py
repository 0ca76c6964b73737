"""What a long training says of itself."""

import pytest
from typer.testing import CliRunner

from probagg.app.cli.commands import app
from probagg.app.cli.terminal import Terminal
from probagg.dpac.engine import Progress


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("probagg.app.cli.terminal.time.monotonic", lambda: now[0])
    return now


def test_the_time_left_is_said_once_it_is_known(clock, capsys):
    line, said = Terminal().train, {"loss": 1.0, "images_per_second": 60.0}
    line(Progress("cluster", 1, 10, 0, 1, said))
    assert capsys.readouterr().err == "cluster    epoch 1/10  loss 1.0000  60 images/s\n"
    clock[0] = 2.0
    line(Progress("cluster", 2, 10, 0, 1, said))
    assert "images/s, 16 s left" in capsys.readouterr().err


def test_training_is_never_silent_for_long(clock, capsys):
    """Without a terminal too, where whole tenths of the epochs are reported otherwise."""
    line = Terminal().train
    line(Progress("pretrain", 0, 1000, 0, 9))
    assert capsys.readouterr().err == "pretrain   epoch 0/1000\n"
    clock[0] = 50.0
    line(Progress("pretrain", 0, 1000, 1, 9))
    assert capsys.readouterr().err == ""
    clock[0] = 100.0
    line(Progress("pretrain", 0, 1000, 2, 9))
    assert "epoch 0/1000 step 2/9, 124 h 58 min left" in capsys.readouterr().err


def test_methods_are_completed():
    words = {"COMP_WORDS": "probagg cluster photos --method ", "COMP_CWORD": "4"}
    env = words | {"_PROBAGG_COMPLETE": "complete_bash"}
    said = CliRunner().invoke(app, prog_name="probagg", env=env).stdout
    assert said.split() == ["auto", "pac", "dpac"]
