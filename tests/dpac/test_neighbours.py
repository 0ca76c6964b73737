"""What neighbours say: who they are, and that they correct single rows."""

import pytest
import torch

from probagg.dpac import neighbours
from probagg.dpac.neighbours import ask, nearest


@pytest.mark.parametrize("metric", ["cosine", "sqeuclidean"])
def test_the_nearest_are_those_of_the_distance_matrix(metric, generator, monkeypatch):
    monkeypatch.setattr(neighbours, "SIMILARITIES", 1000)  # so that there are several blocks
    X = torch.randn(400, 6, generator=generator, dtype=torch.float64) + 1.0
    near = nearest(X, 4, metric)
    Y = torch.nn.functional.normalize(X, dim=1) if metric == "cosine" else X
    expected = torch.cdist(Y, Y).topk(10, largest=False).indices
    assert near.shape == (400, 10)
    assert torch.equal(near.sort(1).values, expected.sort(1).values)


@pytest.mark.parametrize(
    ("n", "n_clusters", "expected"), [(3000, 10, 20), (300, 10, 3), (30, 10, 2), (1, 1, 1)]
)
def test_a_small_cluster_is_not_averaged_with_the_others(n, n_clusters, expected, generator):
    X = torch.randn(n, 3, generator=generator)
    assert nearest(X, n_clusters, "sqeuclidean").shape == (n, expected)


def test_neighbours_correct_what_is_said_of_single_rows(generator):
    y = torch.arange(600) % 3
    X = 4.0 * torch.eye(3)[y] + 0.3 * torch.randn(600, 3, generator=generator)
    wrong = torch.rand(600, generator=generator) < 0.25
    P = 0.7 * torch.eye(3)[torch.where(wrong, (y + 1) % 3, y)] + 0.1
    Q = ask(nearest(X, 3, "sqeuclidean"), P, balance=0.5)
    torch.testing.assert_close(Q.sum(1), torch.ones(600))
    assert (P.argmax(1) == y).float().mean() < 0.8
    assert torch.equal(Q.argmax(1), y)


def test_balance_holds_a_small_cluster_against_averages():
    """A ring in which every row is averaged with its two next: a run of four rows would go."""
    rows = torch.arange(100)
    near = torch.stack([rows, (rows + 1) % 100, (rows - 1) % 100], 1)
    P = torch.eye(2)[(rows < 4).long()]
    sizes = [int((ask(near, P, balance=b).argmax(1) == 1).sum()) for b in (0.0, 0.5)]
    assert sizes[0] == 0
    assert sizes[1] >= 4


def test_an_empty_cluster_stays_empty():
    P = torch.tensor([[1.0, 0.0]] * 5)
    Q = ask(torch.arange(5)[:, None], P, balance=1.0)
    assert torch.equal(Q, P)
