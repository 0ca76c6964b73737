import warnings

import pytest
import torch

from probagg import diagnose
from probagg.errors import ClusteringWarning, InputError

FEATURES = torch.eye(4).repeat(50, 1) + 0.01 * torch.arange(200)[:, None] / 200


def test_a_clustered_batch_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = diagnose(FEATURES, torch.eye(4).repeat(50, 1))
    assert found.state == "clustering"
    assert found.advice == ""
    assert (found.sharpness, found.agreement) == (1.0, 1.0)
    assert found.evenness == pytest.approx(1.0)
    assert found.smallest == found.largest == 0.25


@pytest.mark.parametrize(
    ("probs", "m", "state", "advice"),
    [
        (torch.full((200, 4), 0.25), 1.9, "uniform", "at or above the critical value"),
        (torch.full((200, 4), 0.25), 1.01, "uniform", "below the critical value"),
        (
            torch.eye(4)[torch.zeros(200, dtype=torch.long)],
            1.03,
            "one cluster",
            "100 % of the rows",
        ),
        (torch.eye(4)[torch.arange(200) % 3], 1.03, "empty clusters", "at least one of 4 clusters"),
    ],
)
def test_each_failure_has_its_own_state_and_advice(probs, m, state, advice):
    with pytest.warns(ClusteringWarning, match=f"{state}: .*{advice}"):
        assert diagnose(FEATURES, probs, m).state == state


def test_a_batch_with_few_rows_per_cluster_has_noisy_targets(generator):
    """Predictions that follow the targets of each batch would hide it from their agreement."""
    centres = torch.nn.functional.normalize(torch.randn(10, 64, generator=generator))
    y = torch.randint(10, (2000,), generator=generator)
    X = centres[y] + 0.15 * torch.randn(2000, 64, generator=generator)
    P = torch.eye(10)[y]
    with pytest.warns(ClusteringWarning, match="noisy targets: .* Use at least 25 rows per"):
        assert diagnose(X[:64], P[:64]).state == "noisy targets"
    found = diagnose(X, P)
    assert found.state == "clustering"
    assert found.stability > 0.8


def test_noise_and_collapse_are_distinguished(generator):
    sharp = torch.eye(4)[torch.randint(4, (200,), generator=generator)]
    with pytest.warns(ClusteringWarning, match="undecided: targets and predictions agree on"):
        assert diagnose(FEATURES, sharp).state == "undecided"
    with pytest.warns(ClusteringWarning, match="They have collapsed"):
        diagnose(torch.ones(200, 4), torch.full((200, 4), 0.25))
    with pytest.raises(ValueError, match="contain NaN or infinity: training has diverged"):
        diagnose(FEATURES * torch.nan, sharp)
    assert diagnose(FEATURES.numpy(), torch.eye(4).repeat(50, 1).numpy()).state == "clustering"


@pytest.mark.parametrize(
    ("probs", "words"),
    [
        (torch.randn(100, 4, generator=torch.Generator().manual_seed(0)), r"logits.softmax\(1\)"),
        (torch.full((100, 4), 0.5), r"logits.softmax\(1\)"),
        (torch.full((4,), 0.25), "Flatten or pool"),
    ],
)
def test_what_is_not_a_batch_of_probabilities_is_refused(probs, words):
    """Logits in their place would give an evenness below 0 and advice that misleads."""
    with pytest.raises(ValueError, match=words):
        diagnose(torch.eye(4).repeat(25, 1), probs)


def test_probabilities_in_half_precision_are_diagnosed(generator):
    P = (3 * torch.randn(200, 1000, generator=generator)).softmax(1)
    features = torch.randn(200, 8, generator=generator)
    for dtype in (torch.bfloat16, torch.float16):
        assert diagnose(features, P.to(dtype), warn=False).state


def test_the_critical_m_is_that_of_the_features():
    from probagg import critical_m

    found = diagnose(FEATURES, torch.full((200, 4), 0.25), warn=False)
    assert found.critical_m == pytest.approx(critical_m(FEATURES.numpy(), "cosine"), abs=1e-4)


def test_an_empty_batch_is_an_error():
    with pytest.raises(InputError, match="no rows"):
        diagnose(torch.zeros(0, 4), torch.zeros(0, 3))
