import itertools

import numpy as np
import pytest

from probagg import clustering_accuracy
from probagg.metrics import evaluate


@pytest.mark.parametrize(("classes", "clusters"), [(3, 3), (4, 2), (2, 4)])
def test_accuracy_is_the_best_of_all_matchings(rng, classes, clusters):
    """The best is found by trying every one-to-one match."""
    y, labels = rng.integers(classes, size=60), rng.integers(clusters, size=60)
    size = max(classes, clusters)
    best = max(
        np.mean(np.array(match)[labels] == y) for match in itertools.permutations(range(size))
    )
    assert clustering_accuracy(y, labels) == pytest.approx(best)


def test_empty_clusters_and_any_names_are_fine():
    assert clustering_accuracy(["a", "a", "b"], [9, 9, 4]) == 1.0
    assert clustering_accuracy([0, 0, 1], [5, 5, 5]) == pytest.approx(2 / 3)


def test_unequal_lengths_are_an_error():
    with pytest.raises(ValueError, match="y_true has 2 entries and labels has 3"):
        clustering_accuracy([0, 1], [0, 1, 1])


def test_evaluate_gives_the_three_scores_of_the_paper():
    assert evaluate([0, 0, 1, 1], [1, 1, 0, 0]) == {"acc": 1.0, "nmi": 1.0, "ari": 1.0}
