"""The study of prototypes."""

from benchmarks.paper import deep
from benchmarks.record import Cell
from benchmarks.studies import prototypes


def test_weights_differ_and_share_one_graph(tmp_path, monkeypatch):
    """Without the term the clusters of the start are judged on the graph of their own features."""
    monkeypatch.setattr(deep, "runs_folder", lambda size: tmp_path)
    plain, weighted = (
        prototypes.run(Cell("digits", "byol", w, 30), "tiny") for w in ("0.0", "0.5")
    )
    assert plain["pretrain_seconds"] != weighted["pretrain_seconds"]  # two pre-trainings
    assert len(list(tmp_path.glob("digits/pretrain-*"))) == 2
    assert 0 < plain["modularity"] < 1
    assert plain["modularity"] != weighted["modularity"]
