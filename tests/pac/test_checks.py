"""The estimator checks of scikit-learn."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from probagg import PAC

REASON = (
    "The start is noise drawn per row, so repeating or dropping rows draws different noise; KMeans "
    "is exempt for the same reason. test_properties.py tests weights as repetition at convergence."
)
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": REASON,
    "check_sample_weight_equivalence_on_sparse_data": REASON,
}


# Four clusters, because one check expects as many probabilities as its y has classes.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [PAC(4), PAC(4, metric="cosine")], expected_failed_checks=lambda _: EXPECTED
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
