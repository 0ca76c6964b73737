"""A classifier that is fitted to PAC's clusters."""

from typing import NamedTuple

import pytest
import torch
from torch import nn

from probagg.dpac import initialization
from probagg.dpac.initialization import (
    fit_head,
    initialize_classifier,
    select_run,
)
from probagg.dpac.neighbours import nearest
from probagg.dpac.pretext import mlp
from probagg.dpac.recipe import Cluster
from probagg.metrics import clustering_accuracy
from probagg.pac import solver
from probagg.pac.solver import Solver
from probagg.smoothing import sharpness


def clusters(generator, n=300, dim=16):
    y = torch.arange(n) % 3
    centres = 3.0 * torch.randn(3, dim, generator=generator)
    return centres[y] + 0.5 * torch.randn(n, dim, generator=generator), y


def test_the_classifier_learns_pacs_clusters(generator):
    X, y = clusters(generator)
    classifier = mlp((16, 32, 3), "batch")
    initialize_classifier(classifier, X, Cluster(metric="sqeuclidean"), seed=0)
    P = classifier.eval()(X).softmax(1)
    assert clustering_accuracy(y, P.argmax(1)) == 1.0
    assert P.amax(1).mean() > 0.9


def test_the_same_seed_gives_the_same_classifier(generator):
    X, _ = clusters(generator)
    states = []
    for _ in range(2):
        torch.manual_seed(0)
        classifier = mlp((16, 32, 3), "batch")
        initialize_classifier(classifier, X, Cluster(metric="cosine"), seed=1)
        states.append(classifier.state_dict())
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])


def test_many_rows_whose_probabilities_are_not_kept(generator, monkeypatch):
    monkeypatch.setattr(solver, "SAMPLE_ROWS", 100)
    X, y = clusters(generator, n=2400)
    assert Solver(3).solve(X).P is None
    classifier = mlp((16, 32, 3), "batch")
    initialize_classifier(classifier, X, Cluster(metric="sqeuclidean"), seed=0)
    assert clustering_accuracy(y, classifier.eval()(X).argmax(1)) == 1.0


@pytest.mark.parametrize("n", [60, 300])
def test_a_linear_head_fits_features_of_small_norm_from_few_rows(n, generator):
    """Pre-training leaves norms of 0.3; after 500 steps the head's sharpness would be 0.57."""
    X, y = clusters(generator, n, dim=64)
    X = 0.3 * X / X.norm(dim=1, keepdim=True)
    P = 0.94 * torch.eye(3)[y] + 0.02
    head = nn.Linear(64, 3)
    fit_head(head, X, P, seed=0)
    answers = head(X).softmax(1).detach()
    assert torch.equal(answers.argmax(1), y)
    assert sharpness(answers) > 0.8


class Run(NamedTuple):
    """What is read from a solution of PAC."""

    history: list[float]
    P: torch.Tensor
    solver: Solver = Solver(3)


def soft(labels):
    return 0.94 * torch.eye(3)[labels] + 0.02


def test_the_most_modular_run_is_selected(generator):
    """A division through the middle of a group separates neighbours."""
    X, y = clusters(generator)
    near = nearest(X, 3, "sqeuclidean")
    wrong = y.clone()
    wrong[y == 1] = torch.randint(1, 3, (100,), generator=generator)
    lower, right = Run([100.0], soft(wrong)), Run([100.4], soft(y))
    for runs in ([lower, right], [right, lower]):
        assert torch.equal(select_run(runs, X, near).argmax(1), y)


def test_a_run_that_cut_across_two_groups_is_repaired(generator):
    y = torch.arange(400) % 2
    X = torch.stack([6.0 * torch.rand(400, generator=generator), 4.0 * y], 1)
    X[:, 1] += 0.5 * torch.randn(400, generator=generator)
    near = nearest(X, 2, "sqeuclidean")
    across = (X[:, 0] > 3.0).long()
    run = Run([1.0], 0.94 * torch.eye(2)[across] + 0.03, Solver(2, m=1.05))
    assert clustering_accuracy(y, across) < 0.6
    assert clustering_accuracy(y, select_run([run], X, near).argmax(1)) > 0.99


def test_plain_and_annealed_runs_are_compared(generator, monkeypatch):
    X, _ = clusters(generator)
    seen = []

    def first(runs, features, near):
        seen.extend(runs)
        return select_run(runs, features, near)

    monkeypatch.setattr(initialization, "select_run", first)
    initialize_classifier(mlp((16, 3), "batch"), X, Cluster(balance=0.25, m=1.05), seed=2)
    solvers = [run.solver for run in seen]
    assert [(pac.random_state, pac.balance, pac.n_init) for pac in solvers] == [
        (seed, 1.0, 1) for seed in range(2, 14)
    ]
    assert {pac.init for pac in solvers} == {"auto", "annealed"}
    assert {(pac.m, pac.metric) for pac in solvers} == {(1.05, "sqeuclidean")}
