"""Flatter spectra of features, and the study of spaces."""

import torch

from benchmarks.paper import deep
from benchmarks.record import Cell
from benchmarks.studies import spaces
from benchmarks.studies.spaces import SETTINGS, flatten_spectrum
from probagg.dpac.start import smoothed_clusters
from probagg.metrics import clustering_accuracy
from probagg.neighbours.smoothing import smoothing_graph


def test_a_direction_of_high_variance_does_not_hide_the_clusters():
    """As the features are, PAC cuts along that direction."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 3
    X = 0.6 * torch.randn(3, 15, generator=generator)[y]
    X += 0.1 * torch.randn(300, 15, generator=generator)
    wide = 8.0 * torch.rand(300, 1, generator=generator) - 4.0
    X = torch.cat([X, wide, torch.full((300, 1), 10.0)], 1)  # cosines are about distances
    as_they_are, flattened = (
        clustering_accuracy(
            y,
            smoothed_clusters(
                Z, smoothing_graph(Z, 3, SETTINGS.metric), 3, SETTINGS, seed=0
            ).argmax(1),
        )
        for Z in (X, flatten_spectrum(X, 0.25))
    )
    assert as_they_are < 0.7
    assert flattened > 0.97


def test_a_flatter_spectrum():
    """Variances become their square roots, whatever the axes, with more columns than rows too."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(60, 200, generator=generator) * torch.logspace(1, -1, 200)
    Z = flatten_spectrum(X, 0.25)
    assert Z.shape == (60, 128)
    unit = torch.nn.functional.normalize(X, dim=1)
    variance = torch.linalg.svdvals((unit - unit.mean(0)).double())[:59] ** 2 / 60
    assert torch.allclose(Z.double().var(0, correction=0)[:59], variance.sqrt(), rtol=1e-3)
    turn = torch.linalg.qr(torch.randn(200, 200, generator=generator))[0]
    turned = flatten_spectrum(X @ turn, 0.25)
    assert torch.allclose(Z @ Z.T, turned @ turned.T, atol=1e-4)


def test_equal_features_stay_equal():
    assert torch.equal(flatten_spectrum(torch.ones(9, 4), 0.25), torch.zeros(9, 4))


def test_the_best_space_has_the_highest_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(deep, "runs_folder", lambda size: tmp_path)
    found = spaces.run(Cell("digits", "best", seed=5), "tiny")
    assert found["fit"][found["space"]] == max(found["fit"].values())
    assert len(set(found["fit"].values())) == 3
    assert found["acc"] == found["accs"][found["space"]]


def test_ways_of_digits_differ_and_every_run_of_pac_is_scored():
    ways = ("as they are", ""), ("flattened", "0.25"), ("hidden layer", ""), ("projections", "")
    found = [spaces.run(Cell("digits", *way, 5), "tiny") for way in ways]
    assert all(len(each["runs"]) == 12 for each in found)
    assert found[1]["critical_m"] < found[0]["critical_m"]
    assert len({each["critical_m"] for each in found}) == 4
