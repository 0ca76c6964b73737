"""The deep tables of the paper (benchmarks/paper): shared stages, settings, errors of targets."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks.paper import deep, table4
from benchmarks.paper.table7 import Errors
from benchmarks.record import Cell
from benchmarks.study import select


def test_a_setting_on_request_is_run_only_where_it_is_named():
    cells = [Cell("a", "x"), Cell("a", "x", "paper"), Cell("b", "x", "paper")]
    assert select(cells, [], {"paper"}) == cells[:1]
    assert select(cells, ["paper", "b"], {"paper"}) == cells[2:]


def test_an_error_is_right_by_the_network_and_wrong_by_the_target():
    """Targets are wrong in rows 0 and 5, the network in row 5 alone."""
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    network = torch.eye(2)[[1, 1, 1, 1, 0, 1, 0, 0]]  # numbers of clusters are arbitrary
    targets = torch.eye(2)[[0, 1, 1, 1, 0, 1, 0, 0]]
    errors, stage = Errors(y), SimpleNamespace(state={"targets": targets})
    assert errors(stage, network, network) == {}  # nothing is known before the first epoch
    found = errors(stage, network, network)
    assert found == {"errors": 1 / 8, "target_acc": 6 / 8}


def test_methods_share_a_pretraining_and_finished_stages_stay(tmp_path, monkeypatch):
    """The second method trains only its own stage, and a repeated run trains nothing."""
    monkeypatch.setattr(deep, "runs_folder", lambda size: tmp_path)
    first = table4.run(Cell("digits", "dpac-opa"), "tiny")
    assert table4.run(Cell("digits", "dpac-opa"), "tiny") == first  # to the seconds it took
    other = table4.run(Cell("digits", "dpac-jpac"), "tiny")
    assert other["pretrain_seconds"] == first["pretrain_seconds"]
    stages = sorted(path.name.partition("-")[0] for path in (tmp_path / "digits").iterdir())
    assert stages == ["cluster", "cluster", "pretrain"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_full_size_without_a_gpu_is_one_clear_error():
    with pytest.raises(SystemExit, match="on a GPU, and torch finds none here"):
        deep.Experiment.of("cifar10", "full", 0)


def test_imagenette_stands_in_for_imagenet_under_its_own_name(monkeypatch):
    monkeypatch.delenv("PROBAGG_IMAGENET", raising=False)
    assert deep.available("cifar10", "imagenet10", size="full") == ("cifar10", "imagenette")
    monkeypatch.setitem(os.environ, "PROBAGG_IMAGENET", "photos")
    assert deep.available("imagenet10", size="full") == ("imagenet10",)
