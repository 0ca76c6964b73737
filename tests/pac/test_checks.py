"""scikit-learn's own list of what an estimator must do."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from probagg import PAC

REASON = (
    "The start is noise drawn for each row, so repeating or dropping rows draws other noise; "
    "KMeans is excused for the same reason. test_properties.py shows weights as repetition at the "
    "fixed point."
)
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": REASON,
    "check_sample_weight_equivalence_on_sparse_data": REASON,
}


# Four clusters, because one check wants as many probabilities as its own y has classes.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [PAC(4), PAC(4, metric="cosine")], expected_failed_checks=lambda _: EXPECTED
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
