"""Ways of clustering: the start is not trained, and no two ways are the same."""

import torch

from benchmarks.paper import deep
from benchmarks.paper.weights import read_weights
from benchmarks.record import Cell
from benchmarks.studies import cluster_stage


def test_the_start_leaves_the_backbone_as_pre_training_left_it(tmp_path, monkeypatch):
    monkeypatch.setattr(deep, "runs_folder", lambda size: tmp_path)
    run = cluster_stage.run(Cell("digits", "start", seed=5), "tiny")
    before, after = (
        read_weights(next(tmp_path.glob(f"digits/{stage}-*/seed5/{stage}")))
        for stage in ("pretrain", "cluster")
    )
    weights = [name for name in before if name.startswith("backbone.") and "running" not in name]
    assert weights
    assert all(torch.allclose(before[name], after[name], atol=1e-8) for name in weights)
    assert run["settings"]["changes"][-2:] == list(cluster_stage.STILL)


def test_more_has_a_longer_pre_training_and_no_two_other_ways_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(deep, "runs_folder", lambda size: tmp_path)
    cluster_stage.run(Cell("digits", "more", seed=5), "tiny")
    recipes = [path.read_text() for path in tmp_path.glob("digits/pretrain-*/seed5/recipe.toml")]
    assert sorted(text.partition("[pretrain]\nepochs = ")[2][0] for text in recipes) == ["3", "6"]
    for data in cluster_stage.RECIPES:
        ways = [c for c in cluster_stage.cells("full", 1) if c.data == data and c.method != "more"]
        found = {(cluster_stage.stage_of(way), cluster_stage.settings(way)) for way in ways}
        assert len(found) == len(ways)
