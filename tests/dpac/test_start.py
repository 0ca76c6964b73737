"""A classifier that is fitted to PAC's clusters, and the kNN graph that corrects them."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from probagg.aggregation import critical_m
from probagg.dpac import start
from probagg.dpac.pretext import mlp
from probagg.dpac.recipe import ClusterSettings
from probagg.dpac.start import (
    fit_head,
    initialize_classifier,
    outputs_of,
    recut,
    select_run,
    smoothed_clusters,
)
from probagg.metrics import clustering_accuracy
from probagg.neighbours import graph
from probagg.neighbours.smoothing import sharpen, sharpness, smooth, smoothing_graph
from probagg.pac import solver
from probagg.pac.solver import Parameters, solve

FEATURES = {"features": nn.Identity()}


def clusters(generator, n=300, dim=16):
    y = torch.arange(n) % 3
    centres = 3.0 * torch.randn(3, dim, generator=generator)
    return centres[y] + 0.5 * torch.randn(n, dim, generator=generator), y


def test_the_classifier_learns_pacs_clusters(generator):
    X, y = clusters(generator)
    classifier = mlp((16, 32, 3), "batch")
    initialize_classifier(classifier, X, FEATURES, ClusterSettings(metric="sqeuclidean"), seed=0)
    P = classifier.eval()(X).softmax(1)
    assert clustering_accuracy(y, P.argmax(1)) == 1.0
    assert P.amax(1).mean() > 0.9


def test_the_classifier_learns_known_labels_in_their_numbers(generator):
    X, y = clusters(generator)
    known = np.where(np.arange(300) < 6, (y.numpy() + 1) % 3, -1)
    known[0] = 0  # one of them is wrong, and stays so
    classifier = mlp((16, 32, 3), "batch")
    settings = ClusterSettings(metric="sqeuclidean")
    initialize_classifier(classifier, X, FEATURES, settings, seed=0, known=known)
    assert torch.equal(classifier.eval()(X[6:]).argmax(1), (y[6:] + 1) % 3)


def test_pac_clusters_the_space_whose_clusters_fit_all_graphs(generator):
    """Features also have a stronger division, of which the projector knows nothing."""
    X, y = clusters(generator)
    other, division = clusters(generator)
    division = division[torch.randperm(300, generator=generator)]
    other = 10.0 * torch.randn(3, 16, generator=generator)[division] + other
    both = torch.cat([X, other], dim=1)
    head = nn.Linear(32, 16, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.eye(16, 32))
    settings = ClusterSettings(metric="sqeuclidean")
    found = {}
    for spaces in (FEATURES, FEATURES | {"hidden": head}):
        classifier = mlp((32, 32, 3), "batch")
        name = initialize_classifier(classifier, both, spaces, settings, seed=0)
        found[name] = clustering_accuracy(y, classifier.eval()(both).argmax(1))
    assert found["features"] < 0.6
    assert found["hidden"] > 0.95


@pytest.mark.parametrize(("offset", "spread"), [(1.0, 0.0), (1.0, 1e-2), (0.0, 1.0)])
def test_a_space_without_clusters_does_not_win(offset, spread, generator):
    """Where all rows are equal, all labels are of one cluster, of which every graph is sure."""
    X, _ = clusters(generator)
    rows = {
        "features": X,
        "projections": offset + spread * torch.randn(300, 8, generator=generator),
    }
    settings = ClusterSettings(metric="cosine", m=1.02)
    found = start.compare_spaces(rows, 3, settings, seed=0)
    assert found["features"][0] > found["projections"][0] + 0.1


def test_a_wide_head_is_reduced_to_the_directions_that_matter(generator):
    """In evaluation mode; the head itself stays in training mode."""
    X = torch.randn(2500, 8, generator=generator)
    head = nn.Sequential(nn.Linear(8, 40, bias=False), nn.BatchNorm1d(40)).train()
    Z = outputs_of(head, X, 8)
    assert head.training
    full = head.eval()(X).detach()
    assert Z.shape == (2500, 8)
    assert torch.allclose(Z @ Z.T, full @ full.T, atol=1e-3)  # 8 directions hold all of it


def test_the_same_seed_gives_the_same_classifier(generator):
    X, _ = clusters(generator)
    states = []
    for _ in range(2):
        torch.manual_seed(0)
        classifier = mlp((16, 32, 3), "batch")
        initialize_classifier(classifier, X, FEATURES, ClusterSettings(metric="cosine"), seed=1)
        states.append(classifier.state_dict())
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])


def test_many_rows_whose_probabilities_are_not_kept(generator, monkeypatch):
    monkeypatch.setattr(solver, "SAMPLE_ROWS", 100)
    X, y = clusters(generator, n=2400)
    assert solve(X, Parameters(3)).P is None
    classifier = mlp((16, 32, 3), "batch")
    initialize_classifier(classifier, X, FEATURES, ClusterSettings(metric="sqeuclidean"), seed=0)
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
    parameters: Parameters = Parameters(3)


def soft(labels):
    return 0.94 * torch.eye(3)[labels] + 0.02


def test_the_most_modular_run_is_selected(generator):
    """A division through the middle of a group separates neighbours."""
    X, y = clusters(generator)
    near = smoothing_graph(X, 3, "sqeuclidean")
    wrong = y.clone()
    wrong[y == 1] = torch.randint(1, 3, (100,), generator=generator)
    lower, right = Run([100.0], soft(wrong)), Run([100.4], soft(y))
    for runs in ([lower, right], [right, lower]):
        assert torch.equal(select_run(runs, X, near).argmax(1), y)


def test_a_run_that_cut_across_two_groups_is_repaired(generator):
    y = torch.arange(400) % 2
    X = torch.stack([6.0 * torch.rand(400, generator=generator), 4.0 * y], 1)
    X[:, 1] += 0.5 * torch.randn(400, generator=generator)
    near = smoothing_graph(X, 2, "sqeuclidean")
    across = (X[:, 0] > 3.0).long()
    run = Run([1.0], 0.94 * torch.eye(2)[across] + 0.03, Parameters(2, m=1.05))
    assert clustering_accuracy(y, across) < 0.6
    assert clustering_accuracy(y, select_run([run], X, near).argmax(1)) > 0.99
    for of_first in (0, 1):  # whatever the halves are called, known rows say which is which
        known = np.full(400, -1)
        known[:4] = y[:4] if of_first == 0 else 1 - y[:4]
        found = select_run([run], X, near, known).argmax(1)
        assert (found == (y if of_first == 0 else 1 - y)).float().mean() > 0.99


def test_plain_and_annealed_runs_are_compared(generator, monkeypatch):
    X, _ = clusters(generator)
    seen = []

    def first(runs, features, near, known):
        seen.extend(runs)
        return select_run(runs, features, near, known)

    monkeypatch.setattr(start, "select_run", first)
    settings = ClusterSettings(balance=0.25, m=1.05)
    initialize_classifier(mlp((16, 3), "batch"), X, FEATURES, settings, seed=2)
    solvers = [run.parameters for run in seen]
    assert [(pac.random_state, pac.balance, pac.n_init) for pac in solvers] == [
        (seed, 1.0, 1) for seed in range(2, 14)
    ]
    assert {pac.init for pac in solvers} == {"auto", "annealed"}
    assert {pac.metric for pac in solvers} == {"sqeuclidean"}
    assert {pac.m for pac in solvers} == {1.05}
    assert critical_m(X) > 1.1


def test_m_is_lowered_half_way_to_the_critical_m(generator, monkeypatch):
    X, _ = clusters(generator)
    X = X + 8.0 * torch.randn(300, 16, generator=generator)
    threshold = critical_m(X, "cosine")
    assert threshold < 1.2
    seen = []
    monkeypatch.setattr(start, "solve", lambda X, pac, *rest: seen.append(pac.m) or solve(X, pac))
    near = smoothing_graph(X, 3, "cosine")
    smoothed_clusters(X, near, 3, ClusterSettings(metric="cosine", m=1.3), seed=0)
    assert len(seen) >= len(start.INITS)
    assert seen == pytest.approx([0.5 + 0.5 * threshold] * len(seen))


def test_equal_features_have_uniform_clusters():
    X = torch.ones(60, 4)
    near = smoothing_graph(X, 3, "cosine")
    Q = smoothed_clusters(X, near, 3, ClusterSettings(metric="cosine"), seed=0)
    assert torch.allclose(Q, torch.full((60, 3), 1 / 3), atol=1e-3)


@pytest.mark.parametrize("metric", ["cosine", "sqeuclidean"])
def test_the_graph_is_that_of_the_distance_matrix(metric, generator, monkeypatch):
    monkeypatch.setattr(graph, "SIMILARITIES", 1000)  # so that there are several blocks
    X = torch.randn(400, 6, generator=generator, dtype=torch.float64) + 1.0
    near = smoothing_graph(X, 4, metric)
    Y = torch.nn.functional.normalize(X, dim=1) if metric == "cosine" else X
    expected = torch.cdist(Y, Y).topk(10, largest=False).indices
    assert near.shape == (400, 10)
    assert torch.equal(near.sort(1).values, expected.sort(1).values)


@pytest.mark.parametrize(
    ("n", "n_clusters", "expected"), [(3000, 10, 20), (300, 10, 3), (30, 10, 2), (1, 1, 1)]
)
def test_a_small_set_has_fewer_neighbours_per_row(n, n_clusters, expected, generator):
    X = torch.randn(n, 3, generator=generator)
    assert smoothing_graph(X, n_clusters, "sqeuclidean").shape == (n, expected)


def test_smoothing_corrects_the_labels_of_single_rows(generator):
    y = torch.arange(600) % 3
    X = 4.0 * torch.eye(3)[y] + 0.3 * torch.randn(600, 3, generator=generator)
    wrong = torch.rand(600, generator=generator) < 0.25
    P = 0.7 * torch.eye(3)[torch.where(wrong, (y + 1) % 3, y)] + 0.1
    Q = smooth(smoothing_graph(X, 3, "sqeuclidean"), P)
    torch.testing.assert_close(Q.sum(1), torch.ones(600))
    assert (P.argmax(1) == y).float().mean() < 0.8
    assert torch.equal(Q.argmax(1), y)


@pytest.mark.parametrize("sizes", [(900, 100), (550, 450)])
def test_unequal_clusters_keep_their_masses_and_confidence(sizes, generator):
    """Also if they are smoothed repeatedly, as in training, and one more cluster is empty."""
    y = torch.arange(2).repeat_interleave(torch.tensor(sizes))
    X = 4.0 * torch.eye(2)[y] + 0.3 * torch.randn(1000, 2, generator=generator)
    near = smoothing_graph(X, 3, "sqeuclidean")
    Q = torch.eye(3)[y] * 0.999 + torch.tensor([0.001, 0.001, 1e-15])
    for _ in range(5):
        Q = smooth(near, Q)
    torch.testing.assert_close(Q.sum(0)[:2], torch.tensor(sizes).float(), atol=2.0, rtol=0.0)
    assert (Q.amax(1) > 0.99).all()


def test_smoothing_does_not_shrink_a_small_cluster():
    """On a ring where every row has its two start, four consecutive rows keep their mass."""
    rows = torch.arange(100)
    near = torch.stack([rows, (rows + 1) % 100, (rows - 1) % 100], 1)
    P = torch.eye(2)[(rows < 4).long()]
    assert 3.0 < smooth(near, P)[:, 1].sum() < 6.0


def parallel(generator, n=400):
    """Two long parallel groups, and a third one far away."""
    y = torch.arange(n) % 2
    X = torch.stack([6.0 * torch.rand(n, generator=generator), 1.0 * y], 1)
    X[:, 1] += 0.1 * torch.randn(n, generator=generator)
    far = torch.tensor([3.0, 20.0]) + torch.randn(n // 2, 2, generator=generator)
    return torch.cat([X, far]), torch.cat([y, torch.full((n // 2,), 2)])


def test_two_groups_that_were_cut_across_are_divided_along_the_gap(generator):
    """PAC halves two long groups across, since that has the lower objective."""
    X, y = parallel(generator)
    across = torch.where(y == 2, 2, (X[:, 0] > 3.0).long())
    Q = recut(smoothing_graph(X, 3, "sqeuclidean"), 0.94 * torch.eye(3)[across] + 0.02)
    torch.testing.assert_close(Q.sum(1), torch.ones(len(y)))
    assert (across == y).float().mean() < 0.7
    assert clustering_accuracy(y, Q.argmax(1)) > 0.99


def test_with_two_clusters_all_rows_are_divided(generator):
    X, y = parallel(generator)
    X, y = X[y < 2], y[y < 2]
    Q = recut(smoothing_graph(X, 2, "sqeuclidean"), torch.eye(2)[(X[:, 0] > 3.0).long()])
    assert clustering_accuracy(y, Q.argmax(1)) > 0.99


def test_clusters_that_are_too_small_or_not_connected_are_not_divided(generator):
    X, y = parallel(generator, n=16)
    assert recut(smoothing_graph(X, 3, "sqeuclidean"), torch.eye(3)[y]) is None
    rows = torch.arange(200).reshape(2, 100).repeat_interleave(100, 0)
    assert recut(rows, torch.eye(2)[torch.arange(200) // 100]) is None
    assert recut(rows, torch.full((200, 3), 1 / 3)) is None  # all rows have the same label


def test_an_offset_does_not_change_the_graph(generator):
    X = torch.randn(500, 64, generator=generator)
    near, far = smoothing_graph(X, 5, "sqeuclidean"), smoothing_graph(X + 1000.0, 5, "sqeuclidean")
    same = [len(set(a.tolist()) & set(b.tolist())) for a, b in zip(near, far, strict=True)]
    assert sum(same) > 0.95 * near.numel()


def test_probabilities_get_the_given_sharpness_from_below_and_above():
    Q = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    for to in (0.5, 0.75, 0.95):
        sharpened = sharpen(Q, to)
        assert sharpness(sharpened) == pytest.approx(to, abs=1e-4)
        assert torch.equal(sharpened.argsort(1), Q.argsort(1))
