"""python -m benchmarks NAME: its scripts, their help and mistakes."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from benchmarks import ROOT, __main__
from benchmarks.__main__ import FOLDERS, listed, main, scripts, summary

ECHO = '''"""Say what the script was called with.

More of the docstring.
"""
import sys


def main():
    print(sys.argv)
    sys.exit(7)
'''
WAIT = '''"""Wait for a signal."""
import signal
import sys
import time


def end(number, frame):
    print("cleaned up after", signal.Signals(number).name, flush=True)
    sys.exit(9)


def main():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    print("waiting", flush=True)
    time.sleep(60)
'''
NO_SCRIPT = '"""Methods for scripts."""\n'


@pytest.fixture
def clone(tmp_path):
    """A repository with the runner, two scripts, and a module beside them that is not one."""
    root = tmp_path / "clone"
    for folder in FOLDERS:
        (root / "benchmarks" / folder).mkdir(parents=True)
    for name in ("__init__.py", "__main__.py", "study.py", "record.py"):
        (root / "benchmarks" / name).write_text((ROOT / "benchmarks" / name).read_text())
    for name in ("expected.py", "expected.toml"):
        (root / "benchmarks/paper" / name).write_text(
            (ROOT / "benchmarks/paper" / name).read_text()
        )
    (root / "benchmarks/studies/echo.py").write_text(ECHO)
    (root / "benchmarks/paper/wait.py").write_text(WAIT)
    (root / "benchmarks/paper/methods.py").write_text(NO_SCRIPT)
    return root


def command(*arguments, cwd=ROOT):
    """`python -m benchmarks` for subprocess."""
    env = {k: v for k, v in os.environ.items() if k != "PROBAGG_DATA"}
    return {
        "args": [sys.executable, "-m", "benchmarks", *arguments],
        "env": env | {"PYTHONPATH": str(ROOT / "src")},
        "cwd": cwd,
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }


def test_a_script_gets_its_arguments_unchanged_and_returns_its_exit_code(clone):
    done = subprocess.run(**command("echo", "--seeds", "0", "--help", "a b", cwd=clone))
    said = "['python -m benchmarks echo', '--seeds', '0', '--help', 'a b']\n"
    assert (done.returncode, done.stdout) == (7, said), done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_script_in_its_own_way(clone, number):
    with subprocess.Popen(**command("wait", cwd=clone)) as process:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        said, errors = process.communicate(timeout=30)
    assert said == f"cleaned up after {number.name}\n"
    assert (process.returncode, errors) == (9, "")


def test_the_list_has_every_script_with_the_first_line_of_its_docstring(clone, monkeypatch):
    monkeypatch.setattr(__main__, "__file__", str(clone / "benchmarks" / "__main__.py"))
    assert list(listed()) == [
        "Tables and figures of the paper (benchmarks/paper):",
        "  wait  Wait for a signal.",
        "Time and memory (benchmarks/speed):",
        "Studies of our own (benchmarks/studies):",
        "  echo  Say what the script was called with.",
        "Pictures and tables of the documentation (benchmarks/figures):",
    ]


def test_every_script_has_a_summary_and_a_name_of_its_own():
    paths = [path for folder in FOLDERS for path in (ROOT / "benchmarks" / folder).glob("*.py")]
    stems = [path.stem for path in paths]
    assert len(set(stems)) == len(stems)
    assert {"table2", "scale", "opa_loop", "draw_fig1"} <= set(scripts())
    assert all(summary(path) for path in scripts().values())


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_the_help_has_an_example_and_the_list(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    with contextlib.suppress(SystemExit):
        main()
    said = capsys.readouterr().out
    assert "python -m benchmarks table2 --size small" in said
    assert all(line in said for line in listed())


def test_an_unknown_name_is_one_error_that_names_the_nearest(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "tabel2", "--size", "small"])
    with pytest.raises(SystemExit) as end:
        main()
    error = capsys.readouterr().err.splitlines()[-1]
    assert end.value.code == 2
    assert "there is no script 'tabel2'. Did you mean 'table2'?" in error


def test_a_mistake_in_a_scripts_options_is_the_scripts_to_report(monkeypatch):
    options = ["table2", "--size", "tiny", "--only", "nonsense"]
    monkeypatch.setattr(sys, "argv", ["benchmarks", *options])
    with pytest.raises(SystemExit, match="--only has 'nonsense'; possible are"):
        main()


def helped(name):
    """What a script prints with --help where PROBAGG_DATA is not set."""
    return subprocess.run(**command(name, "--help"))


def test_a_script_shows_its_help():
    done = helped("scale")
    usage = "usage: python -m benchmarks scale"
    assert (done.returncode, done.stdout[: len(usage)]) == (0, usage), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(scripts()))
def test_every_script_shows_its_help(name):
    done = helped(name)
    assert (done.returncode, done.stdout[:6]) == (0, "usage:"), done.stderr
