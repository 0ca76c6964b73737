"""Selection of the number of clusters without labels."""

import csv
import io
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.metrics import pairwise_distances, silhouette_score

from probagg.errors import InputError
from probagg.pac.n_clusters import (
    LEVEL,
    WEIGHTS,
    read_tree,
    select_n_clusters,
    selection_from,
    silhouette,
    unrelated_columns,
)


def blobs(K, N, D, seed=0, ratio=1.0, apart=9.0):
    """Return Gaussian blobs on a grid; the last is `ratio` times as large as the first."""
    rng = np.random.default_rng(seed)
    side = int(np.ceil(K ** (1 / min(D, 3))))
    corners = np.stack(np.meshgrid(*[np.arange(side)] * min(D, 3)), -1).reshape(-1, min(D, 3))
    centres = np.zeros((K, D))
    centres[:, : min(D, 3)] = apart * corners[rng.permutation(len(corners))[:K]]
    share = np.linspace(1.0, ratio, K)
    y = rng.choice(K, N, p=share / share.sum())
    return centres[y] + rng.standard_normal((N, D))


def chosen(X, candidates="auto", **options):
    options = {"random_state": 0} | options
    return select_n_clusters(X, candidates, **options).n_clusters


@pytest.mark.parametrize(
    ("K", "N", "D", "ratio"),
    [(3, 200, 2, 1), (5, 200, 16, 1), (10, 600, 4, 2), (20, 800, 64, 1), (40, 1000, 3, 1)],
)
def test_the_number_of_blobs_is_found(K, N, D, ratio):
    """Groups of 20 rows or more that are well apart leave no doubt."""
    assert chosen(blobs(K, N, D, ratio=ratio)) == K


@pytest.mark.parametrize("cloud", ["normal", "uniform"])
@pytest.mark.parametrize("D", [1, 2, 16])
def test_data_without_clusters_has_no_clear_structure(cloud, D):
    rng = np.random.default_rng(0)
    X = getattr(rng, cloud)(size=(600, D))
    selection = select_n_clusters(X, (2, 12), random_state=0)
    assert not selection.clear
    assert selection.reason.startswith("No clear structure")
    assert f"K={selection.n_clusters}" in selection.reason


def test_correlated_columns_are_not_structure(rng):
    """A null of independent columns would be rounder than a long cloud."""
    X = rng.normal(size=(500, 2)) @ [[3.0, 3.0], [0.3, -0.3]]
    assert not select_n_clusters(X, (2, 10), random_state=0).clear


@pytest.mark.parametrize("candidates", [(6, 12), [5, 9, 12], (2, 3)])
def test_a_choice_and_its_interval_lie_within_the_candidates(candidates, rng):
    """Also for data without clusters, which fits no number."""
    for X in (blobs(4, 300, 4), rng.normal(size=(300, 4))):
        selection = select_n_clusters(X, candidates, random_state=0)
        low, high = selection.interval
        assert min(candidates) <= low <= selection.n_clusters <= high <= max(candidates)


def test_the_interval_is_one_number_for_blobs_and_wider_where_they_overlap():
    apart = select_n_clusters(blobs(6, 400, 3), (2, 12), random_state=0)
    assert apart.interval == (6, 6)
    assert "6 clusters fit best of 2 to 12, and no other comes close" in apart.reason
    overlap = load_digits().data[:300]
    unsure = select_n_clusters(overlap, (2, 20), random_state=0)
    low, high = unsure.interval
    assert low < high
    assert f"{low} to {high} clusters have a probability of 80 %" in unsure.reason


def test_few_rows_of_overlapping_groups_are_not_two_clusters():
    """Ten overlapping groups of 15 rows in 20 columns: gaps cannot be seen, neighbours can."""
    rng = np.random.default_rng(1)
    X = np.repeat(rng.normal(size=(10, 20)), 15, axis=0) + 0.75 * rng.normal(size=(150, 20))
    selection = select_n_clusters(X, random_state=0)
    assert selection.clear
    assert abs(selection.n_clusters - 10) <= 2


def test_unit_origin_and_order_of_rows_do_not_matter():
    X = blobs(6, 400, 3)
    moved = np.random.default_rng(1).permutation(X) * 1e-3 + 50.0
    assert chosen(X, (2, 9)) == chosen(moved, (2, 9)) == 6


def test_equal_seeds_give_equal_tables():
    X = blobs(4, 200, 2, apart=4.0)
    tables = [
        [
            (row.n_clusters, row.probability, row.silhouette_null, row.chosen)
            for row in select_n_clusters(X, (2, 8), random_state=seed).table
        ]
        for seed in (3, 3, 4)
    ]
    assert tables[0] == tables[1] != tables[2]


def test_cosine_depends_on_directions_only():
    """Rows of lengths 1 to 100 along five directions are five clusters."""
    rng = np.random.default_rng(0)
    rows = np.eye(5)[rng.integers(5, size=300)] + 0.05 * rng.standard_normal((300, 5))
    assert chosen(rows * rng.uniform(1.0, 100.0, (300, 1)), metric="cosine") == 5


def test_distances_give_the_same_choice_as_rows():
    X = blobs(4, 160, 3)
    D = pairwise_distances(X, metric="sqeuclidean")
    for rows, metric in ((X, "sqeuclidean"), (D, "precomputed"), (X, "manhattan")):
        assert chosen(rows, (2, 7), metric=metric) == 4


def test_sparse_rows_are_accepted():
    X = blobs(5, 300, 4)
    assert chosen(sp.csr_matrix(X)) == 5


def test_a_large_set_is_sampled(monkeypatch):
    monkeypatch.setattr("probagg.pac.n_clusters.SAMPLE_ROWS", 400)
    assert chosen(blobs(5, 5000, 4), (2, 8)) == 5


def test_small_groups_are_found():
    rng = np.random.default_rng(0)
    y = rng.choice(3, 600, p=[0.75, 0.2, 0.05])
    X = np.array([[0.0, 0.0], [14.0, 0.0], [0.0, 14.0]])[y] + rng.standard_normal((600, 2))
    assert chosen(X, (2, 8)) == 3


def test_lists_ranges_and_pairs_name_the_same_candidates():
    X = blobs(3, 120, 2)
    for candidates in ([4, 2, 3, 3], range(2, 5), (2, 4), np.array([2, 3, 4])):
        selection = select_n_clusters(X, candidates, random_state=0)
        assert [row.n_clusters for row in selection.table] == [2, 3, 4]
        assert [row.chosen for row in selection.table] == [False, True, False]


def test_two_numbers_in_a_list_are_refused_where_they_could_mean_a_range():
    """(2, 10) and [2, 10] would silently differ by seven candidates."""
    X = blobs(3, 120, 2)
    for candidates in ([2, 5], np.array([2, 5])):
        with pytest.raises(InputError, match=r"tuple, \(2, 5\), .* or a set, \{2, 5\}, for these"):
            select_n_clusters(X, candidates)
    for candidates, expected in (((2, 5), [2, 3, 4, 5]), ({5, 2}, [2, 5]), ([3, 2], [2, 3])):
        selection = select_n_clusters(X, candidates, random_state=0)
        assert [row.n_clusters for row in selection.table] == expected


def test_a_single_candidate_is_possible():
    selection = select_n_clusters(blobs(3, 90, 2), [3], random_state=0)
    assert selection.n_clusters == 3
    assert "the only candidate" in selection.reason


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ("elbow", "candidates='elbow' is given"),
        (5, "candidates=5 is given"),
        ([], "or whole numbers such as"),
        ([2.5], "or whole numbers such as"),
        ((9, 3), "low end above its high end"),
        ([1, 2], "100 rows allow 2 to 25: 4 rows per cluster are needed on average"),
        ((2, 200), "from 2 to 200 are given, but 100 rows allow 2 to 25"),
    ],
)
def test_impossible_candidates_are_refused(candidates, message):
    with pytest.raises(ValueError, match=message):
        select_n_clusters(blobs(3, 100, 2), candidates)


def test_rows_that_cannot_be_clustered_are_refused():
    X = blobs(3, 100, 2)
    with pytest.raises(ValueError, match="at least 8 are needed: 4 for each of 2 clusters"):
        select_n_clusters(X[:7])
    with pytest.raises(ValueError, match=r"the path 'rows.npy'. Pass rows: np.load"):
        select_n_clusters("rows.npy")
    with pytest.raises(ValueError, match="All rows are the same"):
        select_n_clusters(np.ones((50, 3)))
    with pytest.raises(ValueError, match="'metric' parameter of select_n_clusters must be"):
        select_n_clusters(X, metric=3)


def test_duplicate_rows_are_handled():
    """Of four distinct rows, gaps are empty and further clusters have no rows."""
    X = np.repeat([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0], [5.0, 5.0]], 20, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chosen(X) == 4


def test_the_table_can_be_written_as_csv():
    selection = select_n_clusters(blobs(3, 100, 2), (2, 4), random_state=0)
    rows = list(csv.DictReader(io.StringIO(selection.to_csv())))
    assert [int(row["n_clusters"]) for row in rows] == [2, 3, 4]
    assert [row["chosen"] for row in rows] == ["0", "1", "0"]
    assert float(rows[1]["probability"]) == pytest.approx(selection.table[1].probability, rel=1e-5)


def test_the_silhouette_is_that_of_scikit_learn(rng):
    """Clusters may be empty or have one row."""
    D = pairwise_distances(rng.normal(size=(30, 3)))
    labels = np.append(rng.choice([0, 1, 4], 29), 3)
    found = silhouette(D @ np.eye(6)[labels], labels)
    assert found == pytest.approx(silhouette_score(D, labels, metric="precomputed"))
    assert silhouette(D @ np.eye(6)[np.zeros(30, int)], np.zeros(30, int)) == 0.0


def test_a_tree_is_read_at_every_number_up_to_one_more():
    """Groups that are apart are all of the scatter, and neighbours never leave theirs."""
    found = read_tree(blobs(4, 200, 3).astype(np.float32), 6)
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(found, 8)
    assert found["silhouette"].argmax() == 4
    assert found["modularity"][4] == pytest.approx(0.75, abs=0.02)
    assert found["scatter"][4] < 0.05 * found["scatter"][3]


def read(silhouettes, modularities):
    """Return readings of the numbers from 2, of which the null has nothing."""
    n, K = len(silhouettes), np.arange(2, 2 + len(silhouettes))
    silhouette, modularity = np.array(silhouettes), np.array(modularities)
    gains = {"silhouette_gain": silhouette, "modularity_gain": modularity}
    nulls = {"silhouette_null": np.zeros(n), "modularity_null": np.zeros(n)}
    both = {"silhouette": silhouette, "modularity": modularity, "elbow": np.zeros(n)}
    return {"n_clusters": K, "log_k": np.log(K), **both, **gains, **nulls}


def test_the_interval_holds_most_of_the_probability_around_the_most_probable():
    selection = selection_from(read([0.5, 0.6, 0.65, 0.6, 0.3], [0.4, 0.5, 0.6, 0.55, 0.3]), [])
    P = np.array([row.probability for row in selection.table])
    low, high = selection.interval
    assert P.sum() == pytest.approx(1.0)
    assert selection.n_clusters == 2 + P.argmax() == 4
    assert LEVEL <= P[low - 2 : high - 1].sum() < 1.0
    assert P[low - 2 : high - 1].sum() - min(P[low - 2], P[high - 2]) < LEVEL


def test_an_interval_of_more_than_a_factor_of_four_is_no_clear_number():
    readings = read([0.5] * 30, [0.5] * 30)
    readings["elbow"] = -WEIGHTS["log_k"] / WEIGHTS["elbow"] * readings["log_k"]
    selection = selection_from(readings, [])
    low, high = selection.interval
    assert high > 4 * low
    assert not selection.clear
    assert selection.reason.startswith(f"No clear number: {low} to {high} clusters")


def test_the_largest_candidate_is_named_as_such():
    selection = selection_from(read([0.1, 0.2, 0.9], [0.4, 0.5, 0.9]), [])
    assert selection.n_clusters == 4
    assert "It is the largest candidate" in selection.reason


def test_readings_as_those_of_one_group_are_no_structure():
    assert selection_from(read([0.8, 0.9], [0.5, 0.6]), []).clear
    assert not selection_from(read([0.05, 0.05], [0.02, 0.02]), []).clear


@pytest.mark.parametrize("n_noise", [1, 4])
def test_columns_unrelated_to_the_groups_do_not_mislead(n_noise, rng):
    """Noise as wide as the groups are apart; without it there are three groups."""
    X = 4.0 * rng.normal(size=(3, 4))[rng.integers(3, size=400)] + rng.standard_normal((400, 4))
    noisy = np.hstack([X, 5.0 * rng.standard_normal((400, n_noise))])
    assert unrelated_columns(noisy, rng) == list(range(4, 4 + n_noise))
    selection = select_n_clusters(noisy, random_state=0)
    assert selection.n_clusters == 3
    assert "Columns left out as unrelated to the others: 4" in selection.reason


def test_columns_that_are_left_out_have_the_names_of_a_table(rng):
    pandas = pytest.importorskip("pandas")
    X = 4.0 * rng.normal(size=(3, 4))[rng.integers(3, size=200)] + rng.standard_normal((200, 4))
    frame = pandas.DataFrame(X, columns=list("abcd")).assign(lucky=5.0 * rng.normal(size=200))
    assert "the others: lucky." in select_n_clusters(frame, random_state=0).reason
    named = select_n_clusters(frame.to_numpy(), feature_names=[*"abcd", "e"], random_state=0)
    assert "the others: e." in named.reason


def test_independent_columns_are_all_kept(rng):
    """No column tells of another in a grid of groups, nor in a cloud."""
    grid = rng.integers(3, size=(400, 3)) + 0.05 * rng.standard_normal((400, 3))
    assert unrelated_columns(grid, rng) == unrelated_columns(rng.normal(size=(400, 5)), rng) == []


@pytest.mark.parametrize("n_categories", [2, 3])
def test_a_random_category_does_not_multiply_the_groups(n_categories):
    """Three groups in two columns beside a category were six or nine."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 40)
    X = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])[y] + rng.standard_normal((120, 2))
    X = np.hstack([X / X.std(0), np.eye(n_categories)[rng.integers(n_categories, size=120)]])
    low, high = select_n_clusters(X, random_state=0).interval
    assert low <= 3 <= high <= 6
