"""Exported models return the probabilities of PAC, GraphPAC and DPAC, with merged clusters."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from exported import (
    floats,
    onnx_file,
    quietly,
    run_onnx,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import regions
from problems import bar_and_dot

from probagg import DPAC, PAC, GraphPAC, Recipe
from probagg.app.export import (
    PACHead,
    Reviewed,
    head_of,
    labeller_of,
)
from probagg.app.review import Review, Split
from probagg.errors import ClusteringWarning


@pytest.fixture(scope="module")
def pac(blobs):
    return PAC(3, random_state=0).fit(blobs[0])


# PAC


@pytest.mark.parametrize("metric", ["sqeuclidean", "cosine"])
@pytest.mark.parametrize("balance", [0.0, 0.7, 1.0, 1.6])
@pytest.mark.parametrize("aggregate", ["p", "p_m"])
@pytest.mark.parametrize("m", [1.03, 1.4, "auto"])
def test_the_head_equals_predict_proba_for_every_option(blobs, metric, balance, aggregate, m):
    options = {"metric": metric, "balance": balance, "aggregate": aggregate, "m": m}
    pac = quietly(PAC(3, random_state=0, **options), blobs[0])
    head, expected = head_of(pac), pac.predict_proba(blobs[0])
    np.testing.assert_allclose(head(torch.tensor(blobs[0])), expected, atol=1e-9)
    np.testing.assert_allclose(head(floats(blobs[0])), expected, atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    unit=st.sampled_from([1e-12, 1.0, 1e9]),
    offset=st.sampled_from([0.0, 1.0, 1e6]),
    metric=st.sampled_from(["sqeuclidean", "cosine"]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_units_offsets_and_precision_change_nothing(seed, unit, offset, metric, dtype):
    rng = np.random.default_rng(seed)
    X = (unit * (rng.normal(size=(40, 4)) + offset)).astype(dtype)
    pac = quietly(PAC(3, metric=metric, random_state=0, max_iter=5), X)
    new = (unit * (rng.normal(size=(20, 4)) + offset)).astype(dtype)
    exact = pac.predict_proba(new.astype(np.float64))
    np.testing.assert_allclose(PACHead(pac)(torch.tensor(new)), exact, atol=1e-5)


def test_float32_rows_are_exact_for_two_tight_clusters_far_from_zero():
    """Their scores are small differences of large sums: 1e-4 in them is 3e-3 in a probability."""
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0], [300.0, 0.0], [303.0, 0.0]])
    X = (np.repeat(centers, 50, axis=0) + rng.normal(size=(150, 2))).astype(np.float32)
    start = np.repeat(np.eye(3), 50, axis=0)
    pac = quietly(PAC(3, m=1.03, init=start), X.astype(np.float64))
    between = floats(np.stack([np.linspace(301, 302, 50), np.zeros(50)], 1))
    P = head_of(pac)(between)
    assert ((P > 0.1) & (P < 0.9)).any()
    np.testing.assert_allclose(P, pac.predict_proba(between.double().numpy()), atol=1e-6)


def test_a_pac_fitted_on_sparse_rows_takes_dense_ones_when_exported(blobs):
    X = np.where(np.abs(blobs[0]) > 4.0, blobs[0], 0.0)
    pac = quietly(PAC(3, random_state=0), sp.csr_array(X))
    np.testing.assert_allclose(head_of(pac)(floats(X)), pac.predict_proba(X), atol=1e-4)


def test_a_row_on_a_cluster_mean_and_a_row_of_zeros_have_probabilities(blobs):
    """A zero score or a missing direction does not become NaN."""
    X = np.repeat([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], 5, axis=0)
    for metric in ("sqeuclidean", "cosine"):
        pac = quietly(PAC(3, metric=metric, random_state=0), X)
        new = np.array([[1.0, 0.0], [0.0, 0.0]])
        np.testing.assert_allclose(head_of(pac)(floats(new)), pac.predict_proba(new), atol=1e-6)


# GraphPAC


@pytest.fixture(scope="module")
def smoothed():
    X, _ = bar_and_dot(600)
    return GraphPAC(2, metric="cosine", balance=1.0, random_state=0).fit(X)


def test_the_head_of_smoothing_returns_its_probabilities(smoothed):
    """For rows of any length."""
    new = (5.0 * bar_and_dot(300, seed=1)[0]).astype(np.float32)
    np.testing.assert_allclose(
        head_of(smoothed)(floats(new)), smoothed.predict_proba(new), atol=1e-6
    )


# DPAC

TINY = [
    "network.width=8", "pretrain.epochs=1", "pretrain.batch_size=64", "cluster.epochs=1",
    "cluster.batch_size=64", "self_label.batch_size=64", "views.clean_scale=1.25",
]  # fmt: skip


@pytest.fixture(scope="module")
def digit_images(digits):
    return np.round(digits[0][:200] * 255 / 16).astype(np.uint8).reshape(-1, 8, 8, 1)


@pytest.fixture(scope="module", params=[0, 1], ids=["classifier", "self-labelled"])
def dpac(request, digit_images):
    recipe = Recipe.of("digits").override([*TINY, f"self_label.epochs={request.param}"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClusteringWarning)
        return DPAC(3, recipe=recipe, random_state=0, device="cpu").fit(digit_images)


def test_exported_dpac_maps_pixels_to_its_probabilities(dpac, digit_images, tmp_path):
    labeller, pixels = labeller_of(dpac), torch.tensor(digit_images)
    np.testing.assert_allclose(labeller(pixels), dpac.probabilities_, atol=1e-5)
    path = onnx_file(labeller, tmp_path / "dpac.onnx")
    for n in (1, 5):
        P, _ = run_onnx(path, digit_images[:n])
        np.testing.assert_allclose(P, dpac.predict_proba(digit_images[:n]), atol=1e-4)


def test_features_of_dpac_have_its_probabilities(dpac):
    with torch.inference_mode():
        P = head_of(dpac)(torch.tensor(dpac.features_))
    np.testing.assert_allclose(P, dpac.probabilities_, atol=1e-5)


def test_dpac_takes_images_of_a_given_size(dpac, digit_images):
    larger = digit_images[:5].repeat(2, axis=1).repeat(3, axis=2)
    labeller = labeller_of(dpac, size=(16, 24))
    np.testing.assert_allclose(
        labeller(torch.tensor(larger)), dpac.predict_proba(larger), atol=1e-5
    )
    assert labeller.takes.shape == (16, 24, 1)


def test_exported_dpac_contains_only_what_predicts(dpac):
    """The pretext and the head that is not used are not part of the model."""
    tensors = labeller_of(dpac).state_dict()
    steps = {name.split(".")[1] for name in tensors if name.startswith("steps.")}
    assert steps == {"backbone", "head"}
    heads = {"self_labeller", "classifier"}
    assert not any(part in name for name in tensors for part in heads | {"pretext"})


# Merged clusters


def test_probabilities_of_merged_clusters_are_summed(pac, blobs):
    review, P = Reviewed(3, Review(merged={0: 2})), pac.predict_proba(blobs[0])
    expected = np.stack([np.zeros(len(P)), P[:, 1], P[:, 0] + P[:, 2]], 1)
    assert review.clusters == [1, 2]
    np.testing.assert_allclose(review(floats(P), floats(blobs[0])), expected, atol=1e-6)


def test_a_split_gives_the_probability_of_its_cluster_to_one_part(pac, blobs):
    """As `predict` does with the review: `oracles.regions`."""
    X = blobs[0]
    centred = X - X.mean(0)
    half = np.linalg.svd(centred / np.linalg.norm(centred, axis=1, keepdims=True))[2][0]
    mean = np.stack([half, -half]).astype("<f4").tobytes()
    first = Split(0, (3, 4), {}, mean, (0.5, 0.5), (0.0, 0.1))
    second = Split(3, (5, 6), {}, mean, (0.9, 0.1), (0.0, 0.0))
    review = Review(merged={1: 0, 4: 2}, splits=(first, second))
    module = Reviewed(3, review)
    assert module.clusters == review.clusters(3) == [2, 5, 6]
    found, P = regions(review, 3, X), pac.predict_proba(X)
    assert len(np.unique(found[:, 0])) > 1
    expected = np.stack([(P * (found == k)).sum(1) for k in range(7)], 1)
    np.testing.assert_allclose(module(floats(P), floats(X)), expected, atol=1e-6)


# What cannot be exported


def test_other_metrics_are_refused(blobs):
    pac = quietly(PAC(3, metric="manhattan", random_state=0), blobs[0])
    with pytest.raises(ValueError, match=r"metric='manhattan'.*Cluster again with 'sqeuclidean'"):
        head_of(pac)


def test_an_unfitted_model_is_refused():
    for model in (PAC(3), GraphPAC(3), DPAC(3)):
        with pytest.raises(ValueError, match="is not fitted yet"):
            head_of(model)


def test_clusters_of_rows_have_no_labeller(pac):
    with pytest.raises(ValueError, match=r"takes images, but these clusters are of rows\. For new"):
        labeller_of(pac)
