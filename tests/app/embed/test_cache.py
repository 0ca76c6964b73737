"""The cache of features: keyed by content, shared by processes, optional."""

import os
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from torch import nn

from probagg.app.embed.cache import FeatureCache, cache_path
from probagg.app.embed.features import extract_features


def test_the_second_run_reads_no_photo_and_computes_nothing(photos, backbone, network, monkeypatch):
    first = extract_features(photos, backbone)
    monkeypatch.setattr("probagg.app.embed.features.open_photo", None)
    monkeypatch.setattr("probagg.app.embed.features._file_digest", None)
    second = extract_features(photos, backbone)
    assert (second.cached, network.seen) == (10, 10)
    np.testing.assert_array_equal(first.X, second.X)


def test_copied_renamed_and_moved_photos_are_cached(photos, backbone, network, tmp_path):
    first = extract_features(photos, backbone).X
    (photos / "0.png").rename(photos / "z.png")
    shutil.copy(photos / "3.png", photos / "also3.png")
    moved = shutil.move(photos, tmp_path / "elsewhere")
    second = extract_features(moved, backbone)
    assert (second.cached, network.seen) == (11, 10)
    order = [1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 0]
    np.testing.assert_array_equal(second.X, first[order])


def test_only_new_and_changed_photos_are_computed(photos, backbone, network, write_photo):
    extract_features(photos, backbone)
    write_photo(photos / "4.png", 44)
    for number in range(3):
        write_photo(photos / f"new{number}.png", 100 + number)
    found = extract_features(photos, backbone)
    assert (found.cached, network.seen) == (9, 14)
    np.testing.assert_array_equal(found.X, extract_features(photos, backbone, cache=False).X)


def test_a_touched_photo_is_read_again_but_not_computed(photos, backbone, network):
    extract_features(photos, backbone)
    os.utime(photos / "1.png", ns=(1, 1))
    assert extract_features(photos, backbone).cached == 10
    assert network.seen == 10


def test_a_photo_that_changes_during_the_run_is_cached_with_its_new_content(
    photos, backbone, backbone_of, network, write_photo
):
    """Its old content is in the cache; its new features belong to its new content."""
    extract_features(photos, backbone)
    other = type(network)()
    nn.init.ones_(other.mix.weight)
    other = backbone_of(other)

    def change(done, total):
        if done == 1:
            write_photo(photos / "9.png", 1234)

    extract_features(photos, other, batch_size=1, progress=change)
    np.testing.assert_allclose(
        extract_features(photos, other).X, extract_features(photos, other, cache=False).X, atol=1e-6
    )


def test_arrays_are_cached_by_their_pixels(backbone, network, rng):
    array = rng.integers(0, 256, (6, 20, 20, 3), dtype=np.uint8)
    first = extract_features(array, backbone).X
    array[2] += 1
    second = extract_features(array[::-1].copy(), backbone)
    assert (second.cached, network.seen) == (5, 7)
    np.testing.assert_array_equal(np.delete(second.X[::-1], 2, 0), np.delete(first, 2, 0))


def test_other_weights_have_other_features(photos, backbone, network, backbone_of):
    extract_features(photos, backbone)
    other = type(network)()
    nn.init.ones_(other.mix.weight)
    assert extract_features(photos, backbone_of(other)).cached == 0
    assert extract_features(photos, backbone_of(type(network)())).cached == 10, (
        "the same weights have the same identity"
    )


def test_without_the_cache_nothing_is_stored(photos, backbone, network, cache_folder):
    extract_features(photos, backbone, cache=False)
    assert extract_features(photos, backbone, cache=False).cached == 0
    assert list(cache_folder.iterdir()) == []


def test_an_interrupted_run_is_resumed(photos, backbone, network):
    def stop(done, total):
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract_features(photos, backbone, batch_size=3, progress=stop)
    again = extract_features(photos, backbone, batch_size=3)
    assert again.cached >= 6, "and what other cores were at"
    assert network.seen == 10


def test_names_that_are_not_utf8_are_cached_too(tmp_path, backbone, write_photo):
    write_photo(tmp_path / "a.png", 0)
    strange = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.png")
    shutil.copy(tmp_path / "a.png", strange)
    write_photo(tmp_path / "a.png", 1)
    extract_features(tmp_path, backbone)
    assert extract_features(tmp_path, backbone).cached == 2


def break_by_garbage(file):
    file.write_bytes(b"this is no database " * 100)


def break_by_another_schema(file):
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE features (other TEXT)")
        connection.execute("CREATE TABLE files (other TEXT)")


def break_by_a_folder(file):
    file.mkdir()


@pytest.mark.parametrize("spoil", [break_by_garbage, break_by_another_schema, break_by_a_folder])
def test_a_broken_cache_causes_one_warning_and_no_error(
    photos, backbone, cache_folder, caplog, spoil
):
    spoil(cache_folder / "features.sqlite")
    found = extract_features(photos, backbone, batch_size=3)
    assert (len(found.X), found.cached) == (10, 0)
    (warning,) = caplog.records
    assert "nothing is cached. Delete the file, or name another" in warning.getMessage()


def test_a_cache_that_cannot_be_created_causes_no_error(photos, backbone, monkeypatch, caplog):
    monkeypatch.setenv("PROBAGG_CACHE", "/proc/nowhere")
    assert len(extract_features(photos, backbone).X) == 10
    assert len(caplog.records) == 1


def test_truncated_features_are_computed_again(photos, backbone, network, cache_folder):
    first = extract_features(photos, backbone).X
    with sqlite3.connect(cache_folder / "features.sqlite") as connection:
        connection.execute("UPDATE features SET features = x'0000'")
    second = extract_features(photos, backbone)
    assert second.cached == 0
    np.testing.assert_array_equal(first, second.X)


def test_two_processes_share_the_cache(cache_folder):
    """Both write at the same time; neither fails, and all features are stored."""
    code = (
        "import numpy as np; from probagg.app.embed.cache import FeatureCache, cache_path\n"
        "with FeatureCache(cache_path(), 'x', 4) as cache:\n"
        "    for n in range(300):\n"
        "        cache.store([], [(b'%d' % n, np.full(4, n))])\n"
        "        assert cache.find([b'%d' % n])[b'%d' % n][0] == n\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in "ab"]
    assert [process.communicate()[1] for process in both] == [b"", b""]
    with sqlite3.connect(cache_folder / "features.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM features").fetchone() == (300,)


@pytest.mark.parametrize("damage", ["a bit", "not a number", "of another photo", "no digest"])
def test_a_damaged_row_is_computed_again(photos, backbone, network, tmp_path, damage):
    """One flipped bit moved a feature by 9.6e19, without a word."""
    first = extract_features(photos, backbone)
    with sqlite3.connect(cache_path()) as cache:
        rows = dict(cache.execute("SELECT digest, features FROM features"))
        (one, blob), (_, other) = list(rows.items())[:2]
        if damage == "a bit":
            blob = blob[:-1] + bytes([blob[-1] ^ 64])
        elif damage == "not a number":
            blob = blob[:8] + np.full((len(blob) - 8) // 4, np.nan, "<f4").tobytes()
        else:
            blob = other if damage == "of another photo" else blob[8:]
        cache.execute("UPDATE features SET features=? WHERE digest=?", (blob, one))
    second = extract_features(photos, backbone)
    assert (second.cached, network.seen) == (9, 11)
    np.testing.assert_allclose(first.X, second.X, atol=1e-6)
    assert extract_features(photos, backbone).cached == 10


def test_a_row_that_is_not_finite_is_computed_again(backbone):
    """Even where its digest is right: an old network may have given it."""
    with FeatureCache(cache_path(), "network", 3) as cache:
        cache.store([], [(b"a", np.array([1, np.nan, 2])), (b"b", np.ones(3))])
        assert [*cache.find([b"a", b"b"])] == [b"b"]
