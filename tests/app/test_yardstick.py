import numpy as np

from probagg.app.assignments import Yardstick


def test_distances_are_to_the_mean_of_the_own_cluster(two_clusters):
    X, labels = two_clusters
    yardstick = Yardstick.of(X, labels, 2, "sqeuclidean")
    wanted = [np.linalg.norm(x - X[labels == k].mean(0)) for x, k in zip(X, labels, strict=True)]
    np.testing.assert_allclose(yardstick.distances(X, labels), wanted)


def test_cosine_distances_ignore_length():
    X = np.array([[1.0, 0.0], [5.0, 0.1], [0.0, 2.0], [0.1, 9.0]])
    labels = np.array([0, 0, 1, 1])
    yardstick = Yardstick.of(X, labels, 2, "cosine")
    np.testing.assert_allclose(yardstick.distances(X, labels), yardstick.distances(7 * X, labels))
    assert yardstick.distances(X, labels).max() < 0.01
    assert yardstick.distances(X, 1 - labels).min() > 0.9


def test_a_saved_yardstick_gives_the_same_distances(tmp_path, two_clusters):
    X, labels = two_clusters
    yardstick = Yardstick.of(X, labels, 3, "sqeuclidean")  # cluster 2 is empty
    yardstick.save(tmp_path / "y.safetensors")
    read = Yardstick.load(tmp_path / "y.safetensors")
    before, after = yardstick.distances(X, labels), read.distances(X, labels)
    np.testing.assert_allclose(after, before, rtol=1e-5)
    np.testing.assert_array_equal(read.limits, yardstick.limits)


def test_distances_far_from_zero_keep_their_digits(tmp_path, two_clusters):
    X, labels = two_clusters
    yardstick = Yardstick.of(X + 1e9, labels, 2, "sqeuclidean")
    yardstick.save(tmp_path / "y.safetensors")
    near = Yardstick.of(X, labels, 2, "sqeuclidean").distances(X, labels)
    far = Yardstick.load(tmp_path / "y.safetensors").distances(X + 1e9, labels)
    np.testing.assert_allclose(far, near, atol=1e-5)


def test_few_samples_are_outliers_even_with_long_tails():
    """Trained features put most of a cluster on one spot; Tukey's rule alone flags a tenth."""
    X = np.random.default_rng(0).standard_cauchy((2000, 1))
    labels = np.zeros(2000, int)
    yardstick = Yardstick.of(X, labels, 1, "sqeuclidean")
    far = yardstick.distances(X, labels) > yardstick.limits[0]
    assert 0.01 < far.mean() <= 0.026


def test_new_samples_of_a_small_cluster_are_not_all_outliers():
    """A sample pulls the mean of its own cluster towards itself, a new one does not."""
    rng, rates = np.random.default_rng(0), []
    for _ in range(200):
        X = rng.normal(0, 1, (5, 50))
        yardstick = Yardstick.of(X, np.zeros(5, int), 1, "sqeuclidean")
        new = rng.normal(0, 1, (20, 50))
        rates.append((yardstick.distances(new, np.zeros(20, int)) > yardstick.limits[0]).mean())
    assert np.mean(rates) < 0.2
    few = Yardstick.of(rng.normal(0, 1, (2, 3)), np.zeros(2, int), 1, "sqeuclidean")
    assert np.isinf(few.limits[0])


def test_copies_of_one_photo_are_not_outliers():
    """1 - cosine of a row with itself is rounded, to a negative number for some rows."""
    for x in np.random.default_rng(0).normal(size=(20, 1, 30)):
        X, labels = np.repeat(x, 10, axis=0), np.zeros(10, int)
        yardstick = Yardstick.of(X, labels, 1, "cosine")
        distances = yardstick.distances(X, labels)
        assert (distances >= 0.0).all()
        assert (distances <= yardstick.limits[0]).all()
