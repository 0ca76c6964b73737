"""Numbers at the ends of their type: a right answer, or one clear error."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import adjusted_rand_score, pairwise_distances
from threadpoolctl import threadpool_limits

from probagg import PAC
from probagg.errors import InputError

TRUTH = np.arange(60) % 2


def rows(scale, dtype=np.float64):
    """Return two clusters whose largest value is about ten times `scale`."""
    X = np.random.default_rng(0).normal(size=(60, 3)) + 9 * TRUTH[:, None]
    return (X * scale).astype(dtype)


@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(5e-324, "f8"), (1e-320, "f8"), (1e-300, "f8"), (1e150, "f8"), (1e-45, "f4"), (1e37, "f4")],
)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_rows_of_any_size_are_clustered(scale, dtype, kind):
    """The reciprocal of a denormal scale is infinite: rows became NaN."""
    X = kind(np.abs(rows(scale, dtype)))
    pac = PAC(2, m="auto", random_state=0).fit(X)
    assert adjusted_rand_score(TRUTH, pac.labels_) == 1.0
    assert adjusted_rand_score(TRUTH, pac.predict(X)) == 1.0


@pytest.mark.parametrize("scale", [1e152, 1e200, 1e300, 1e307])
@pytest.mark.parametrize("fit", ["fit", "partial_fit"])
def test_rows_whose_squares_overflow_are_refused(scale, fit):
    with pytest.raises(InputError, match=r"squared distances overflow.*Divide X by a constant"):
        getattr(PAC(2, random_state=0), fit)(rows(scale))


def test_distances_whose_sums_overflow_are_refused():
    D = pairwise_distances(rows(1.0))
    for pac, X in ((PAC(2, metric="precomputed"), D * 1e305), (PAC(2, metric="manhattan"), 1e306)):
        given = rows(X) if isinstance(X, float) else X
        with pytest.raises(InputError, match="sums of distances overflow"):
            pac.fit(given)


def test_a_new_row_that_is_too_far_away_is_refused():
    """Its probabilities were NaN, and its label 0."""
    pac = PAC(2, random_state=0).fit(rows(1.0))
    assert np.isfinite(pac.predict_proba(np.full((1, 3), 1e100))).all()
    with pytest.raises(InputError, match=r"so far from the rows that were fitted \(1e\+200\)"):
        pac.predict(np.full((1, 3), 1e200))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_number_of_threads_gives_the_same_bits(threads):
    """With another number sums are rounded in another order, so noise may be labelled otherwise."""
    X = np.random.default_rng(0).normal(size=(20_000, 30))
    with threadpool_limits(threads):
        first, second = (PAC(10, random_state=0, max_iter=5).fit(X) for _ in range(2))
        np.testing.assert_array_equal(first.probabilities_, second.probabilities_)
        np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
