import numpy as np
import pytest

from probagg.assignments import Assignments, Yardstick, overlaps


@pytest.fixture
def two_clusters():
    """Twenty rows about (0, 0) and twenty about (10, 0), and one far above the first."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (20, 2)), rng.normal((10, 0), 1, (20, 2)), [[0, 40]]])
    labels = np.repeat([0, 1, 0], [20, 20, 1])
    return X, labels


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


def test_what_lies_far_out_is_an_outlier_and_what_lies_between_is_borderline(two_clusters):
    X, labels = two_clusters
    yardstick = Yardstick.of(X, labels, 2, "sqeuclidean")
    P = np.where(labels[:, None] == [0, 1], 0.9, 0.1)
    P[3] = [0.6, 0.4]
    assigned = Assignments.of(P, X, yardstick, range(len(X)))
    assert assigned.flag[40] == "outlier"
    assert assigned.flag[3] == "borderline"
    assert set(assigned.flag[20:40]) == {""}


def test_a_table_comes_back_as_it_was_written(tmp_path, two_clusters):
    X, labels = two_clusters
    P = np.where(labels[:, None] == [0, 1], 0.75, 0.25)
    names = ['a,"b".jpg', "zwei\nzeilen.png", *map(str, range(39))]
    assigned = Assignments.of(P, X, Yardstick.of(X, labels, 2, "cosine"), names)
    (tmp_path / "a.csv").write_bytes(assigned.to_csv("path").encode())
    read = Assignments.read(tmp_path / "a.csv")
    assert read.names == names
    np.testing.assert_array_equal(read.cluster, assigned.cluster)
    np.testing.assert_array_equal(read.second_cluster, assigned.second_cluster)
    np.testing.assert_allclose(read.distance, assigned.distance, rtol=1e-5)
    assert read.flag.tolist() == assigned.flag.tolist()


def test_one_cluster_has_no_second(tmp_path):
    assigned = Assignments.of(np.ones((3, 1)), np.zeros((3, 2)), None, "abc")
    assert assigned.to_csv("row").splitlines()[1] == "a,0,1.000000,,,,"
    (tmp_path / "a.csv").write_text(assigned.to_csv("row"))
    read = Assignments.read(tmp_path / "a.csv")
    assert read.second_cluster.tolist() == [-1, -1, -1]
    assert np.isnan(read.distance).all()


def test_a_yardstick_measures_the_same_after_a_file(tmp_path, two_clusters):
    X, labels = two_clusters
    yardstick = Yardstick.of(X, labels, 3, "sqeuclidean")  # cluster 2 is empty
    yardstick.save(tmp_path / "y.safetensors")
    read = Yardstick.load(tmp_path / "y.safetensors")
    before, after = yardstick.distances(X, labels), read.distances(X, labels)
    np.testing.assert_allclose(after, before, rtol=1e-5)
    np.testing.assert_array_equal(read.limits, yardstick.limits)


def test_a_person_s_word_is_certain(two_clusters):
    X, labels = two_clusters
    P = np.where(labels[:, None] == [0, 1], 0.6, 0.4)
    assigned = Assignments.of(P, X, Yardstick.of(X, labels, 2, "cosine"), range(41))
    clusters = assigned.cluster.copy()
    clusters[0] = 1
    put = assigned.put(clusters)
    assert (put.cluster[0], put.probability[0], put.second_cluster[0], put.flag[0]) == (1, 1, 0, "")
    assert put.probability[1] == assigned.probability[1]


def test_clusters_that_share_samples_overlap_most():
    P = np.array([[0.5, 0.4, 0.1], [0.4, 0.5, 0.1], [0.0, 0.1, 0.9], [0.9, 0.1, 0.0]])
    assigned = Assignments.of(P, P, None, range(4))
    pairs = overlaps(P, assigned)
    assert pairs[0][:2] == (0, 1)
    assert pairs[0][2] == pytest.approx((0.4 + 0.1 + 0.4) / 3)
    assert pairs[0][3] == 2
    assert {pair[:2] for pair in pairs} == {(0, 1), (0, 2), (1, 2)}


def test_merged_clusters_are_measured_from_the_part_a_sample_is_in(two_clusters):
    """Merging does not make the members of the absorbed cluster outliers of the other one."""
    X, labels = two_clusters
    yardstick = Yardstick.of(X, labels, 3, "sqeuclidean")
    P = np.where(labels[:, None] == [0, 1, 2], 0.8, 0.1)
    apart = Assignments.of(P, X, yardstick, range(41))
    merged = Assignments.of(P, X, yardstick, range(41), groups=np.array([0, 0, 2]))
    assert set(merged.cluster) == {0}
    np.testing.assert_allclose(merged.probability, 0.9)
    assert set(merged.second_cluster) == {2}
    np.testing.assert_allclose(merged.distance, apart.distance)
    assert merged.flag.tolist() == apart.flag.tolist()
    whole = Assignments.of(P, X, yardstick, range(41), groups=np.array([1, 1, 1]))
    assert (set(whole.cluster), set(whole.second_cluster)) == ({1}, {-1})


def test_far_from_zero_a_yardstick_keeps_its_digits(tmp_path, two_clusters):
    X, labels = two_clusters
    yardstick = Yardstick.of(X + 1e9, labels, 2, "sqeuclidean")
    yardstick.save(tmp_path / "y.safetensors")
    near = Yardstick.of(X, labels, 2, "sqeuclidean").distances(X, labels)
    far = Yardstick.load(tmp_path / "y.safetensors").distances(X + 1e9, labels)
    np.testing.assert_allclose(far, near, atol=1e-5)


def test_few_samples_are_outliers_even_with_long_tails():
    """Trained features put most of a cluster on one spot; Tukey's rule alone calls a tenth far."""
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


def test_merging_a_table_joins_what_was_undecided(two_clusters):
    X, labels = two_clusters
    P = np.where(labels[:, None] == [0, 1, 2], 0.5, 0.25) + np.array([0.0, 0.1, -0.1])
    assigned = Assignments.of(P, X, None, range(41))
    merged = assigned.merge(np.array([0, 0, 2]))
    assert set(merged.cluster) == {0}
    np.testing.assert_allclose(merged.probability, P[:, 0] + P[:, 1])
    assert set(merged.second_cluster) == {-1}
    assert set(merged.flag) == {""}
