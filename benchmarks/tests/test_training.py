"""Stages that end are read once, also in a run that is stopped; ways are ranked without labels."""

import json
import os
import signal
import sys
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.paper import deep, training
from benchmarks.paper.training import Job, rank, train
from probagg import Recipe
from probagg.dpac import start
from probagg.errors import Interrupted

TINY = deep.CHANGES["tiny"]


def test_a_run_stopped_in_a_later_stage_keeps_what_was_read_of_the_first(tmp_path):
    """Its network has the weights of the later stage by then."""
    images, recipe = deep.images("digits", "tiny"), Recipe.of("digits").override(TINY)

    def stop(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        return {}

    job = Job(tmp_path, ("pretrain", "cluster"), every=1, table3=0, verbose=False)
    with pytest.raises(Interrupted, match="SIGTERM"):
        train(images, recipe, 0, replace(job, reveal=stop))
    (weights,) = (tmp_path / "seed0" / "pretrain").glob("*.safetensors")
    before, when = weights.read_bytes(), weights.stat().st_mtime_ns
    rows = train(images, recipe, 0, job)
    assert (weights.read_bytes(), weights.stat().st_mtime_ns) == (before, when)
    assert [point["epoch"] for point in rows["cluster"]["curve"]] == [1, 2, 3]


def test_modularity_ranks_labels_on_the_graph(tmp_path):
    near = np.array([[1, 2], [0, 2], [0, 1], [4, 5], [3, 5], [3, 4]])
    for name, own in {"across": [0, 1, 0, 1, 0, 1], "along": [1, 1, 1, 0, 0, 0]}.items():
        np.save(tmp_path / f"{name}.labels.npy", own)
        read = {"strong_agreement": 0.9, "pac_agreement": 0.8, "diagnosis": {"state": "clustering"}}
        (tmp_path / f"{name}.json").write_text(json.dumps(read))
    found = rank({name: tmp_path / f"{name}.json" for name in ("across", "along")}, near)
    assert list(found) == ["along", "across"]
    assert (found["along"]["modularity"], found["along"]["sizes"]) == (0.5, [3, 3])


def test_ways_start_from_the_same_weights_and_go_on(tmp_path, monkeypatch, capsys):
    """What has ended is neither trained nor read again."""
    monkeypatch.setattr(start, "LINEAR_STEPS", 500)

    def run(*arguments):
        common = ("--recipe", "digits", "--data", "digits", "--first", "300", "--table3", "0")
        monkeypatch.setattr(sys, "argv", ["training", *common, *map(str, arguments)])
        training.main()

    before = tmp_path / "all" / "seed0"
    run("--out", tmp_path / "all", "--stages", "pretrain,cluster", "--set", *TINY)
    ways = ("--way", "one", "--way", "two", "self_label.labels=neighbours")
    options = ("--out", tmp_path / "last", "--weights", before / "cluster", "--set", *TINY, *ways)
    with pytest.raises(SystemExit, match="75"):
        run("--stages", "self_label", "--minutes", "0", *options)
    run("--stages", "self_label", *options)
    ranking = json.loads((tmp_path / "last" / "ranking.json").read_text())
    assert {*ranking} == {"start", "one/seed0", "two/seed0"}
    monkeypatch.setattr(training, "_train", None)
    capsys.readouterr()
    run("--stages", "self_label", *options)
    assert capsys.readouterr().out.count("modularity") == 3
