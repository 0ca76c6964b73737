import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from probagg.app.assignments import COLUMNS, Assignments, Further, Yardstick, overlaps
from probagg.app.review import Review
from probagg.errors import InputError


def test_far_samples_are_outliers_and_undecided_ones_borderline(two_clusters):
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
    assigned = Assignments.of(P, X, Yardstick.of(X, labels, 2, "cosine"), names, heading="path")
    (tmp_path / "a.csv").write_bytes(assigned.to_csv().encode())
    read = Assignments.read(tmp_path / "a.csv")
    assert (read.names, read.heading) == (names, "path")
    assert read.to_csv() == assigned.to_csv()
    np.testing.assert_array_equal(read.cluster, assigned.cluster)
    np.testing.assert_array_equal(read.second_cluster, assigned.second_cluster)
    np.testing.assert_allclose(read.distance, assigned.distance, rtol=1e-5)
    assert read.flag.tolist() == assigned.flag.tolist()


def test_one_cluster_has_no_second(tmp_path):
    assigned = Assignments.of(np.ones((3, 1)), np.zeros((3, 2)), None, "abc", heading="path")
    assert assigned.to_csv().splitlines()[1] == "a,0,1.000000,,,,"
    (tmp_path / "a.csv").write_text(assigned.to_csv())
    read = Assignments.read(tmp_path / "a.csv")
    assert read.second_cluster.tolist() == [-1, -1, -1]
    assert np.isnan(read.distance).all()


def test_a_moved_sample_is_certain(two_clusters):
    X, labels = two_clusters
    P = np.where(labels[:, None] == [0, 1], 0.6, 0.4)
    assigned = Assignments.of(P, X, Yardstick.of(X, labels, 2, "cosine"), range(41))
    clusters = assigned.cluster.copy()
    clusters[0] = 1
    moved = assigned.move(clusters)
    first = moved.records()[0]
    assert first == {
        "row": "0", "cluster": 1, "probability": 1.0, "second_cluster": 0,
        "second_probability": 0.0, "distance": None, "flag": None,
    }  # fmt: skip
    assert moved.probability[1] == assigned.probability[1]


def test_clusters_that_share_samples_overlap_most():
    P = np.array([[0.5, 0.4, 0.1], [0.4, 0.5, 0.1], [0.0, 0.1, 0.9], [0.9, 0.1, 0.0]])
    assigned = Assignments.of(P, P, None, range(4))
    pairs = overlaps(P, assigned)
    assert pairs[0][:2] == (0, 1)
    assert pairs[0][2] == pytest.approx((0.4 + 0.1 + 0.4) / 3)
    assert pairs[0][3] == 2
    assert {pair[:2] for pair in pairs} == {(0, 1), (0, 2), (1, 2)}


def test_an_outlier_is_not_counted_as_borderline_too():
    P = np.array([[0.5, 0.4], [0.4, 0.5], [0.5, 0.4]])
    far = Yardstick("sqeuclidean", np.zeros((2, 1)), np.ones(2))
    assigned = Assignments.of(P, np.array([[0.5], [0.5], [9.0]]), far, range(3))
    assert assigned.flag.tolist() == ["borderline", "borderline", "outlier"]
    assert overlaps(P, assigned)[0][3] == 2


def test_discarded_samples_are_listed_without_a_cluster(tmp_path, two_clusters):
    X, labels = two_clusters
    P = np.where(labels[:, None] == [0, 1, 2], 0.8, 0.1)
    gone = np.arange(41) < 3
    table = Assignments.of(P, X, None, range(41)).discard(gone)
    assert "3 discarded" in repr(table)
    assert table.cluster[:4].tolist() == [-1, -1, -1, labels[3]]
    assert table.second_cluster[:3].tolist() == labels[:3].tolist(), "where they came from"
    (tmp_path / "table.csv").write_text(table.to_csv())
    again = Assignments.read(tmp_path / "table.csv", 3)
    np.testing.assert_array_equal(again.cluster, table.cluster)
    np.testing.assert_array_equal(again.flag, table.flag)
    (tmp_path / "table.csv").write_text(table.to_csv().replace("discarded", ""))
    with pytest.raises(ValueError, match="a cluster is not among 0 to 2"):
        Assignments.read(tmp_path / "table.csv", 3)


def test_distances_in_merged_clusters_are_to_the_own_part(two_clusters):
    """Merging does not make the members of the absorbed cluster outliers of the other one."""
    X, labels = two_clusters
    yardstick = Yardstick.of(X, labels, 3, "sqeuclidean")
    P = np.where(labels[:, None] == [0, 1, 2], 0.8, 0.1)
    apart = Assignments.of(P, X, yardstick, range(41))
    whole = replace(apart, further=Further.of(P, apart))
    merged = Review(merged={1: 0}).apply(whole)
    assert set(merged.cluster) == {0}
    np.testing.assert_allclose(merged.probability, 0.9)
    assert set(merged.second_cluster) == {2}
    np.testing.assert_allclose(merged.distance, apart.distance)
    assert merged.flag.tolist() == apart.flag.tolist()
    whole = Review(merged={0: 1, 2: 1}).apply(whole)
    assert (set(whole.cluster), set(whole.second_cluster)) == ({1}, {-1})


def test_merging_both_clusters_of_a_sample_adds_their_probabilities(two_clusters):
    X, labels = two_clusters
    P = np.where(labels[:, None] == [0, 1, 2], 0.5, 0.25) + np.array([0.0, 0.1, -0.1])
    assigned = Assignments.of(P, X, None, range(41))
    groups = np.array([0, 0, 2])
    merged = assigned.relabel(groups[assigned.cluster], groups[assigned.second_cluster])
    assert set(merged.cluster) == {0}
    np.testing.assert_allclose(merged.probability, P[:, 0] + P[:, 1])
    assert set(merged.second_cluster) == {-1}
    assert set(merged.flag) == {""}


@pytest.fixture
def small():
    P = np.array([[0.9, 0.1], [0.4, 0.6]])
    names = ["a\udcff.jpg", "b.jpg"]
    return Assignments.of(P, P, Yardstick("cosine", np.eye(2), np.ones(2)), names, heading="path")


def test_a_table_is_a_mapping_of_columns(small):
    assert list(small) == small.keys() == ["path", *COLUMNS]
    assert len(small) == 2
    assert dict(small)["cluster"] is small.cluster
    assert {small[name].dtype for name in ("cluster", "second_cluster")} == {np.dtype("int64")}
    with pytest.raises(KeyError, match=r"'clusters' is not a column\. There are path, cluster,"):
        small["clusters"]
    rows = Assignments.of(np.ones((2, 1)), np.ones((2, 1)), None, [7, 3])
    assert rows["row"].tolist() == [7, 3]


def test_records_are_the_lines_of_the_csv(small):
    """`predict --json` prints them: numbers as in the CSV, and null for what is unknown."""
    kinds = dict.fromkeys(("cluster", "second_cluster"), int)
    kinds |= dict.fromkeys(("probability", "second_probability", "distance"), float)
    lines = csv.DictReader(io.StringIO(small.to_csv(), newline=""))
    parsed = [{k: kinds.get(k, str)(v) if v else None for k, v in line.items()} for line in lines]
    assert small.records() == parsed


def test_a_table_becomes_a_data_frame(small):
    pytest.importorskip("pandas")
    frame = small.to_pandas()
    assert list(frame.columns) == small.keys()
    assert frame["cluster"].to_list() == [0, 1]
    assert frame["path"].to_list() == ["a?.jpg", "b.jpg"], "a frame holds only valid text"


def test_a_missing_package_is_named(small, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ImportError, match="pandas, which is not installed: pip install pand"):
        small.to_pandas()


HEADER = "path,cluster,probability,second_cluster,second_probability,distance,flag\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "its first line is ''"),
        ("\0", "its first line is"),
        ("a,b\n1,2\n", "its first line is 'a,b'"),
        ("path,cluster\na,0\n", "its first line is 'path,cluster'"),
        (HEADER, "it has no samples"),
        (HEADER + "a,0,1,,,,\nb,0,1\n", "'b' has 3 cells, but the first line has 7"),
        (HEADER + "a,x,1,,,,\n", "invalid literal for int"),
        (HEADER + "a,0,high,,,,\n", "could not convert string to float"),
        (HEADER + "a,9,1,,,,\n", "a cluster is not among 0 to 2"),
        (HEADER + "a,0,1,3,0.1,,\n", "a cluster is not among 0 to 2"),
        (HEADER + "a,-1,1,,,,\n", "a cluster is not among 0 to 2"),
        (HEADER.replace("path", "row") + "a,0,1,,,,\n", "invalid literal for int"),
        (HEADER + f"a,{10**30},1,,,,\n", "too large"),
    ],
)
def test_a_damaged_table_is_one_clear_error(tmp_path, text, why):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=r"a\.csv cannot be read \(.*Restore") as e:
        Assignments.read(tmp_path / "a.csv", n_clusters=3)
    assert why in str(e.value)


def test_a_missing_table_is_one_clear_error(tmp_path):
    with pytest.raises(InputError, match=r"a\.csv cannot be read \(No such file"):
        Assignments.read(tmp_path / "a.csv")


def test_the_names_of_clusters_come_back_from_the_file(tmp_path, small):
    named = Assignments(**{**vars(small), "cluster_names": {0: "cats, dogs"}})
    (tmp_path / "a.csv").write_bytes(named.to_csv().encode("utf-8", "surrogateescape"))
    assert Assignments.read(tmp_path / "a.csv").cluster_names == {0: "cats, dogs"}


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


def test_one_foreign_sample_in_a_small_cluster_does_not_hide_others():
    """Of 20 samples, the distance that 2.5 % exceed is nearly the largest."""
    rng = np.random.default_rng(0)
    X = rng.normal(0, 1, (20, 10))
    X[0] += 20.0
    yardstick = Yardstick.of(X, np.zeros(20, int), 1, "sqeuclidean")
    foreign = rng.normal(0, 1, (20, 10)) + 12.0
    assert (yardstick.distances(foreign, np.zeros(20, int)) > yardstick.limits[0]).all()


@pytest.mark.parametrize("n", [40, 41, 100])
def test_the_farthest_sample_has_no_part_in_the_limit_of_its_cluster(n):
    """Of 40 samples, the distance that 2.5 % exceed lies between the two largest."""
    X, labels = np.random.default_rng(0).standard_cauchy((n, 1)), np.zeros(n, int)
    X[0] = 1000.0
    yardstick = Yardstick.of(X, labels, 1, "sqeuclidean")
    distances = np.sort(yardstick.distances(X, labels)) * n / (n - 1)
    assert yardstick.limits[0] <= distances[-2]


def test_ignored_samples_change_no_centre_and_no_limit(two_clusters):
    X, labels = two_clusters
    ignored = np.random.default_rng(0).random(len(X)) < 0.3
    found = Yardstick.of(np.where(ignored[:, None], 1e6, X), labels, 2, "sqeuclidean", ignored)
    alone = Yardstick.of(X[~ignored], labels[~ignored], 2, "sqeuclidean")
    np.testing.assert_array_equal(found.centers, alone.centers)
    np.testing.assert_array_equal(found.limits, alone.limits)


def test_a_cluster_of_ignored_samples_is_measured_with_them(two_clusters):
    X, labels = two_clusters
    found = Yardstick.of(X, labels, 2, "sqeuclidean", labels == 1)
    everything = Yardstick.of(X, labels, 2, "sqeuclidean")
    np.testing.assert_array_equal(found.centers, everything.centers)
    np.testing.assert_array_equal(found.limits, everything.limits)


def test_a_large_share_of_outliers_is_said():
    table = Assignments.of(np.eye(2)[[0, 1, 1, 0]], np.eye(2)[[0, 1, 1, 0]], None, "abcd")
    assert not table.is_foreign()
    foreign = replace(table, flag=np.array(["outlier", "", "", ""]))
    assert foreign.is_foreign()
    assert foreign.fit_line() == "1 of 4 fit no cluster (outliers)"


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


def test_a_table_of_some_rows_has_no_probabilities_of_others():
    """Further probabilities name rows of the whole table, and a merge would add them to others."""
    table = Assignments.given(["a", "b", "c"], np.array([0, 1, 2]), [])
    further = Further(np.array([0]), np.array([2]), np.array([0.1], np.float32))
    some = replace(table, further=further).only([2, 1])
    assert some.names == ["c", "b"]
    merged = some.relabel(some.cluster, some.second_cluster, np.array([1]))
    np.testing.assert_array_equal(merged.cluster, [2, 1])
    np.testing.assert_array_equal(merged.second_cluster, [-1, -1])
