"""The cache of features: keyed by content, shared by processes, optional."""

import os
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from torch import nn

from probagg.app.embed import embed, sources


def test_the_second_run_reads_no_photo_and_computes_nothing(photos, backbone, network, monkeypatch):
    first = embed(photos, backbone)
    monkeypatch.setattr(sources, "open_photo", None)
    monkeypatch.setattr(sources, "_file_digest", None)
    second = embed(photos, backbone)
    assert (second.cached, network.seen) == (10, 10)
    np.testing.assert_array_equal(first.X, second.X)


def test_copied_renamed_and_moved_photos_are_cached(photos, backbone, network, tmp_path):
    first = embed(photos, backbone).X
    (photos / "0.png").rename(photos / "z.png")
    shutil.copy(photos / "3.png", photos / "also3.png")
    moved = shutil.move(photos, tmp_path / "elsewhere")
    second = embed(moved, backbone)
    assert (second.cached, network.seen) == (11, 10)
    order = [1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 0]
    np.testing.assert_array_equal(second.X, first[order])


def test_only_new_and_changed_photos_are_computed(photos, backbone, network, write_photo):
    embed(photos, backbone)
    write_photo(photos / "4.png", 44)
    for number in range(3):
        write_photo(photos / f"new{number}.png", 100 + number)
    found = embed(photos, backbone)
    assert (found.cached, network.seen) == (9, 14)
    np.testing.assert_array_equal(found.X, embed(photos, backbone, cache=False).X)


def test_a_touched_photo_is_read_again_but_not_computed(photos, backbone, network):
    embed(photos, backbone)
    os.utime(photos / "1.png", ns=(1, 1))
    assert embed(photos, backbone).cached == 10
    assert network.seen == 10


def test_a_photo_that_changes_during_the_run_is_cached_with_its_new_content(
    photos, backbone, backbone_of, network, write_photo
):
    """Its old content is in the cache; its new features belong to its new content."""
    embed(photos, backbone)
    other = type(network)()
    nn.init.ones_(other.mix.weight)
    other = backbone_of(other)

    def change(done, total):
        if done == 1:
            write_photo(photos / "9.png", 1234)

    embed(photos, other, batch_size=1, progress=change)
    np.testing.assert_allclose(
        embed(photos, other).X, embed(photos, other, cache=False).X, atol=1e-6
    )


def test_arrays_are_cached_by_their_pixels(backbone, network, rng):
    array = rng.integers(0, 256, (6, 20, 20, 3), dtype=np.uint8)
    first = embed(array, backbone).X
    array[2] += 1
    second = embed(array[::-1].copy(), backbone)
    assert (second.cached, network.seen) == (5, 7)
    np.testing.assert_array_equal(np.delete(second.X[::-1], 2, 0), np.delete(first, 2, 0))


def test_other_weights_have_other_features(photos, backbone, network, backbone_of):
    embed(photos, backbone)
    other = type(network)()
    nn.init.ones_(other.mix.weight)
    assert embed(photos, backbone_of(other)).cached == 0
    assert embed(photos, backbone_of(type(network)())).cached == 10, (
        "the same weights have the same identity"
    )


def test_without_the_cache_nothing_is_stored(photos, backbone, network, cache_folder):
    embed(photos, backbone, cache=False)
    assert embed(photos, backbone, cache=False).cached == 0
    assert list(cache_folder.iterdir()) == []


def test_an_interrupted_run_is_resumed(photos, backbone, network):
    def stop(done, total):
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(photos, backbone, batch_size=3, progress=stop)
    assert embed(photos, backbone, batch_size=3).cached >= 6, "and what other cores were at"
    assert network.seen == 10


def test_names_that_are_not_utf8_are_cached_too(tmp_path, backbone, write_photo):
    write_photo(tmp_path / "a.png", 0)
    strange = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.png")
    shutil.copy(tmp_path / "a.png", strange)
    write_photo(tmp_path / "a.png", 1)
    embed(tmp_path, backbone)
    assert embed(tmp_path, backbone).cached == 2


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
    found = embed(photos, backbone, batch_size=3)
    assert (len(found.X), found.cached) == (10, 0)
    (warning,) = caplog.records
    assert "nothing is cached. Delete the file, or name another" in warning.getMessage()


def test_a_cache_that_cannot_be_created_causes_no_error(photos, backbone, monkeypatch, caplog):
    monkeypatch.setenv("PROBAGG_CACHE", "/proc/nowhere")
    assert len(embed(photos, backbone).X) == 10
    assert len(caplog.records) == 1


def test_truncated_features_are_computed_again(photos, backbone, network, cache_folder):
    first = embed(photos, backbone).X
    with sqlite3.connect(cache_folder / "features.sqlite") as connection:
        connection.execute("UPDATE features SET features = x'0000'")
    second = embed(photos, backbone)
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
