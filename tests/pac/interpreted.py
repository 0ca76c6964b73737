"""The kernels for CUDA beside plain torch; `test_fused` runs this in Triton's interpreter."""

import numpy as np
import pytest
import torch

from probagg.pac import fused
from probagg.pac.assignment import Update
from probagg.pac.clusters import LinearClusters
from probagg.pac.coordinates import Coordinates
from probagg.pac.sweeps import BlockSweeps
from probagg.pac.tensors import TensorRows


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    """A few rows are several parts and groups, in few programs: each takes milliseconds."""
    monkeypatch.setattr(fused, "SCORES", 640)
    monkeypatch.setattr(fused, "GROUP", 32)
    monkeypatch.setattr(fused, "ROW_TILE", (16, 16, 1))
    monkeypatch.setattr(fused, "SCORE_TILE", (16, 3, 1, 1))
    monkeypatch.setattr(fused, "ABSORB_TILE", (32, 16, 16, 1))


def blobs(N, D, K, spread=0.3, offset=0.0, dtype=None):
    """Rows around K centres, which overlap; some are there twice."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(K, D, generator=generator) * spread
    y = torch.randint(K, (N,), generator=generator)
    X = centers[y] + torch.randn(N, D, generator=generator) + offset
    X[-5:] = X[0]
    return X.to(dtype or torch.float32), y


def clusters_of(X, y, K, update, metric="sqeuclidean", softness=0.3):
    """Clusters whose moments are those of soft classes; the last one is nearly empty."""
    P = torch.nn.functional.one_hot(y, K) * (1.0 - softness) + softness / K
    P[:, -1] *= 1e-9
    coordinates = Coordinates.of(X.double(), metric)
    sums = P.double().T @ coordinates.lift(X.double())
    center = coordinates.center.float()
    return LinearClusters(update, np.inf, Coordinates(metric, center, coordinates.scale), sums)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((100, 20, 13), {}),
        ((33, 1, 1), {}),
        ((70, 17, 40), {"spread": 1.0, "weights": True}),
        ((100, 9, 8), {"update": Update(1.4, "p_m", 0.5), "weights": True}),  # P is not sparse
        ((100, 9, 8), {"update": Update(1.003, balance=0.0)}),
        ((70, 20, 13), {"metric": "cosine", "offset": 0.5}),
        ((70, 20, 13), {"dtype": torch.float16}),
        ((70, 20, 13), {"dtype": torch.float16, "offset": 2.0}),
        ((70, 20, 13), {"dtype": torch.float16, "offset": 300.0, "weights": True}),
        ((70, 21, 13), {"dtype": torch.bfloat16, "metric": "cosine"}),
    ],
    ids=str,
)
def test_sums_of_rows_are_right_to_single_precision(shape, options):
    """The reference is plain torch in double precision, on the rows as they are given."""
    (N, D, K), update = shape, options.get("update", Update(1.03))
    X, y = blobs(
        N, D, K, options.get("spread", 0.3), options.get("offset", 0.0), options.get("dtype")
    )
    weights = torch.rand(N) ** 4 * 7.0 if options.get("weights") else None
    clusters = clusters_of(X, y, K, update, options.get("metric", "sqeuclidean"))
    found = fused.sums_of(clusters, X, weights)
    exact = Coordinates(
        clusters.coordinates.metric,
        clusters.coordinates.center.double(),
        clusters.coordinates.scale,
    )
    w = None if weights is None else weights.double()
    expected = LinearClusters(update, np.inf, exact, clusters.sums).sums_of(
        slice(None), X.double(), w
    )
    error = 1e-6 / (update.m - 1.0)  # of a score, raised to the power
    assert abs(found - expected).max() < error * expected.abs().max()
    for columns in (slice(0, D), slice(D, D + 1), slice(D + 1, None)):
        assert (found - expected)[:, columns].norm() < error * expected[:, columns].norm()


@pytest.mark.parametrize(
    ("update", "block", "weighted"),
    [
        (Update(1.03), 7, False),
        (Update(1.03), 20, True),
        (Update(1.2, "p_m", 0.5), 16, True),
    ],
    ids=str,
)
def test_blocks_are_updated_one_after_the_other(update, block, weighted):
    """The last block of a sweep is smaller; sweeps in plain torch use panels instead."""
    (X, y), K = blobs(61, 10, 9, spread=2.0), 9
    w = torch.rand(61) if weighted else None
    rows, others = (TensorRows(X, w, None, Coordinates.of(X, "sqeuclidean")) for _ in range(2))
    P = torch.nn.functional.one_hot(y, K) * 0.7 + 0.3 / K
    sweeps = BlockSweeps(rows, rows.arrange(P), update, block)
    Q = P.clone()
    others.start(update.weigh(Q.T, w))
    step = fused.BlockStep(others._lifted, w, others.sums, Q, update, block)
    for _ in range(2):
        measured = sweeps._sweep_all()[:2]
        np.testing.assert_allclose(step.sweep().numpy(), measured, rtol=1e-4)
        assert abs(Q - sweeps.P).max() < 1e-3
    assert (others.sums - rows.sums).norm() < 1e-4 * rows.sums.norm()
