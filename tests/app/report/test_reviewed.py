"""The numbers of a run after a person has merged clusters."""

import json

import numpy as np
import pytest

from probagg.app.assignments import Assignments, overlaps
from probagg.app.review import Review
from probagg.app.run.contents import read_contents, write_review
from probagg.app.run.pages import write_report
from probagg.data.cells import text_table

HEADS = "first second mean_probability samples"


def confused(n_samples, n_clusters, rng):
    """Return probabilities shared by two clusters, about half of them borderline.

    Sizes are unequal. The rest is too little for a merge to change the order or the flags.
    """
    order = rng.permuted(np.tile(np.arange(n_clusters), (n_samples, 1)), axis=1)
    order[: n_samples // 3] = np.sort(order[: n_samples // 3], axis=1)  # many in cluster 0
    ratio = np.where(rng.random(n_samples) < 0.5, rng.uniform(0.6, 0.85, n_samples),
                     rng.uniform(0.05, 0.35, n_samples))  # fmt: skip
    shares = np.column_stack([1 / (1 + ratio), ratio / (1 + ratio)])
    P = np.full((n_samples, n_clusters), 0.02 / n_clusters)
    np.put_along_axis(P, order[:, :2], 0.98 * shares + 0.02 / n_clusters, axis=1)
    return P


def write_run(folder, P, review, flag=None):
    """Write the files of a run that its page needs, as the command does."""
    folder.mkdir()
    K = P.shape[1]
    assigned = Assignments.of(P, np.zeros((len(P), 1)), None, range(len(P)))
    if flag is not None:
        assigned.flag[:] = flag
    (folder / "config.toml").write_text('source = "rows.npy"\nmethod = "pac"\nkind = "matrix"\n')
    (folder / "result.json").write_text(json.dumps({"method": "pac", "n_clusters": K}))
    (folder / "assignments.csv").write_text(assigned.to_csv())
    (folder / "overlaps.csv").write_text(text_table(HEADS, overlaps(P, assigned)))
    write_review(folder, review)
    return folder


@pytest.mark.parametrize(
    "merged", [{}, {2: 0}, {0: 4}, {1: 3, 4: 3}, {5: 1, 1: 0, 3: 2}, {1: 0, 2: 0, 3: 0, 4: 0}]
)
def test_overlaps_after_merges_are_those_of_the_merged_probabilities(merged, tmp_path, rng):
    """The page sums over overlaps.csv; merging P first must give the same."""
    P, review = confused(600, 6, rng), Review(merged=merged)
    after = np.zeros_like(P)
    np.add.at(after.T, review.groups(6), P.T)
    expected = overlaps(after, Assignments.of(after, np.zeros((600, 1)), None, range(600)))
    pairs = read_contents(write_run(tmp_path / "run", P, review)).pairs
    found = {(pair.first, pair.second): pair for pair in pairs}
    assert len(found) == len(pairs)
    assert found.keys() == {(a, b) for a, b, _, _ in expected}
    for a, b, mean, samples in expected:
        assert found[a, b].probability == pytest.approx(mean, rel=1e-4)
        assert found[a, b].samples == samples
    means = [pair.probability for pair in pairs]
    assert means == sorted(means, reverse=True)


def test_samples_between_two_merged_clusters_are_no_longer_borderline(tmp_path, rng):
    P, review = confused(300, 4, rng), Review(merged={1: 0})
    before = read_contents(write_run(tmp_path / "before", P, Review())).samples
    after = read_contents(write_run(tmp_path / "after", P, review)).samples
    inside = np.isin(before.cluster, [0, 1]) & np.isin(before.second_cluster, [0, 1])
    assert (before.flag[inside] == "borderline").any()
    assert (after.flag[inside] == "").all()
    assert (before.flag[~inside] == "borderline").any()
    np.testing.assert_array_equal(after.flag[~inside], before.flag[~inside])


def test_an_outlier_stays_one_after_a_merge(tmp_path, rng):
    """It is still far from its own part of the merged cluster."""
    P, review = confused(50, 3, rng), Review(merged={1: 0})
    run = write_run(tmp_path / "run", P, review, flag="outlier")
    assert (read_contents(run).samples.flag == "outlier").all()


def test_clusters_can_be_merged_into_an_empty_one(tmp_path):
    P = np.tile([0.9, 0.1, 0.0], (20, 1))
    run = write_run(tmp_path / "run", P, Review(merged={0: 2}))
    contents = read_contents(run)
    assert contents.clusters == [1, 2]
    assert contents.sizes == {1: 0, 2: 20}
    assert "includes the former cluster 0" in " ".join(write_report(run).read_text().split())
