"""Photos sorted into a folder a cluster: where to, under which names, whole or not at all."""

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from probagg.app.run import output
from probagg.app.run.folder import RunFolderError
from probagg.app.run.output import (
    Output,
    check_target,
    sort_images,
    write_sidecar,
)
from probagg.errors import InputError, NoData


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    return folder


@pytest.fixture
def locked(tmp_path):
    """A folder that may not be written; no mode stops root, but Linux writes nothing there."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    return Path("/sys") if os.access(folder, os.W_OK) else folder


def fill(folder, *paths):
    """A file for each path that holds the path."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    return list(paths)


def contents(target):
    """What lies where under a folder."""
    return {
        file.relative_to(target).as_posix(): file.read_text()
        for file in target.rglob("*")
        if file.is_file()
    }


@pytest.mark.parametrize("link", [False, True])
def test_every_image_lies_in_the_folder_of_its_cluster(tmp_path, photos, link):
    paths = fill(photos, "a.jpg", "sub/b.jpg", "c.jpg")
    target = tmp_path / "new" / "sorted"
    assert sort_images(photos, paths, [0, 10, 10], {10: "red/cars"}, target, link=link) == 3
    wanted = {"00/a.jpg": "a.jpg", "10-red-cars/sub__b.jpg": "sub/b.jpg"}
    assert contents(target) == wanted | {"10-red-cars/c.jpg": "c.jpg"}
    assert (target / "00" / "a.jpg").is_symlink() == link
    assert [path.name for path in target.parent.iterdir()] == ["sorted"]


@pytest.mark.parametrize(
    ("target", "how"), [("photos", "is"), ("photos/sorted", "lies in"), (".", "holds")]
)
@pytest.mark.parametrize("position", [0, 1])
def test_a_target_that_meets_the_source_or_the_run_is_refused(
    tmp_path, photos, target, how, position
):
    """Copies in the source would be clustered the next time; a run must own its folder."""
    others = [tmp_path.parent / "elsewhere"] * 2
    others[position] = photos
    with pytest.raises(RunFolderError, match=f" {how} {photos}. Name a folder elsewhere"):
        check_target(tmp_path / target, *others)


def test_a_target_is_judged_by_where_it_really_is(tmp_path, photos, monkeypatch):
    (tmp_path / "link").symlink_to(photos)
    with pytest.raises(RunFolderError, match="lies in"):
        check_target(tmp_path / "link" / "sorted", photos)
    monkeypatch.chdir(photos)
    with pytest.raises(RunFolderError, match="lies in"):
        check_target(Path("sorted"), Path("."))
    check_target(tmp_path / "photos-sorted", photos, tmp_path / "run")


def test_images_of_joined_folders_are_sorted_beside_them_but_not_into_them(tmp_path):
    """After an update, the source is the folder above both, often the working folder."""
    paths, folders = fill(tmp_path, "photos/a.jpg", "new/b.jpg"), ["photos", "new"]
    for target, how in (("new/sorted", "lies in"), ("photos", "is"), (".", "holds")):
        with pytest.raises(RunFolderError, match=how):
            sort_images(tmp_path, paths, [0, 1], {}, tmp_path / target, link=False, folders=folders)
    sort_images(tmp_path, paths, [0, 1], {}, tmp_path / "sorted", link=False, folders=folders)
    assert set(contents(tmp_path / "sorted")) == {"0/photos__a.jpg", "1/new__b.jpg"}


def test_sorting_never_writes_into_its_source(photos):
    paths = fill(photos, "a.jpg")
    with pytest.raises(RunFolderError, match="lies in"):
        sort_images(photos, paths, [0], {}, photos / "sorted", link=False)
    assert contents(photos) == {"a.jpg": "a.jpg"}


def test_a_target_that_holds_something_is_refused(tmp_path, photos):
    fill(photos, "a.jpg")
    with pytest.raises(RunFolderError, match="photos is not empty"):
        check_target(photos)
    with pytest.raises(RunFolderError, match=r"a\.jpg is not a folder"):
        check_target(photos / "a.jpg")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match="gone is not a folder"):
        check_target(tmp_path / "gone")


def test_names_too_long_for_a_file_are_cut_and_stay_different(tmp_path, photos):
    """Both halves are fine on disk; joined they pass 255 bytes, and begin alike."""
    deep = "é" * 100
    paths = fill(photos, *(f"{deep}/{'b' * 200}{i}.jpg" for i in range(3)), "short.jpg")
    sort_images(photos, paths, [0] * 4, {}, tmp_path / "sorted", link=False)
    found = contents(tmp_path / "sorted")
    assert sorted(found.values()) == sorted(paths)
    for name in found:
        assert name.endswith(".jpg")
        assert len(os.fsencode(name.removeprefix("0/"))) <= 255
    assert sum(name.startswith(f"0/{deep}__bbb") for name in found) == 3
    assert "0/short.jpg" in found


def test_a_long_name_of_a_cluster_is_cut(tmp_path, photos):
    paths = fill(photos, "a.jpg")
    sort_images(photos, paths, [3], {3: "ö" * 300}, tmp_path / "sorted", link=False)
    (folder,) = (tmp_path / "sorted").iterdir()
    assert folder.name.startswith("3-öööö")


def test_paths_that_would_share_a_name_both_arrive(tmp_path, photos):
    paths = fill(photos, "a/b__c.jpg", "a__b/c.jpg")
    sort_images(photos, paths, [0, 0], {}, tmp_path / "sorted", link=False)
    assert sorted(contents(tmp_path / "sorted").values()) == paths


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("stop", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing_half_done(tmp_path, photos, monkeypatch, there, stop):
    paths, target = fill(photos, "a.jpg", "b.jpg"), tmp_path / "out" / "sorted"
    target.parent.mkdir()
    if there:
        target.mkdir()
    copy = output.copy_file

    def fail_at_the_second(file, where):
        if file.name == "b.jpg":
            raise stop
        return copy(file, where)

    monkeypatch.setattr(output, "copy_file", fail_at_the_second)
    with pytest.raises(type(stop)):
        sort_images(photos, paths, [0, 1], {}, target, link=False)
    assert list(target.parent.rglob("*")) == ([target] if there else [])
    monkeypatch.undo()
    assert sort_images(photos, paths, [0, 1], {}, target, link=False) == 2, "it can be tried again"


def test_an_empty_folder_is_filled_and_not_replaced(tmp_path, photos):
    """It may be a disk of its own, or a link to one: nothing can be renamed onto it."""
    paths = fill(photos, "a.jpg")
    (tmp_path / "disk").mkdir()
    (tmp_path / "sorted").symlink_to(tmp_path / "disk")
    before = (tmp_path / "disk").stat().st_ino
    sort_images(photos, paths, [0], {}, tmp_path / "sorted", link=False)
    assert contents(tmp_path / "disk") == {"0/a.jpg": "a.jpg"}
    assert (tmp_path / "disk").stat().st_ino == before
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["0"]


def test_a_single_image_is_sorted_too(tmp_path, photos):
    paths = fill(photos, "a.jpg")
    sort_images(photos / "a.jpg", paths, [2], {}, photos / "sorted", link=False)
    assert contents(photos / "sorted") == {"2/a.jpg": "a.jpg"}


def test_a_source_without_files_is_refused(tmp_path, photos):
    fill(photos, "a.npz")
    with pytest.raises(NoData, match=r"a\.npz is not a folder of images"):
        sort_images(photos / "a.npz", ["0"], [0], {}, tmp_path / "sorted", link=False)


@pytest.mark.parametrize("inside", ["sorted", "new/sorted"])
def test_a_target_without_permission_is_refused_before_any_work(photos, locked, inside):
    with pytest.raises(RunFolderError, match="cannot be written"):
        check_target(locked / inside, photos)


def test_an_output_without_permission_is_refused_before_any_work(locked):
    with pytest.raises(InputError, match=r"--out .*new\.csv cannot be written"):
        Output(locked / "new.csv").check()


def keyword(sidecar):
    """The subject that a reader of XMP finds in a file."""
    return ElementTree.parse(sidecar).find(".//{http://purl.org/dc/elements/1.1/}subject//*/*").text


def test_a_sidecar_has_the_name_of_the_cluster_and_one_that_exists_stays(tmp_path, photos):
    paths = fill(photos, "a.jpg", "b.jpg", "b.jpg.xmp", "c.jpg", "c.xmp")
    assert write_sidecar(photos / "a.jpg", 'R&D <\x00"1">')
    assert keyword(photos / "a.jpg.xmp") == 'R&D < "1">'
    assert not write_sidecar(photos / "a.jpg", "other")
    assert not write_sidecar(photos / "b.jpg", "other")
    assert not write_sidecar(photos / "c.jpg", "other")
    assert (photos / "b.jpg.xmp").read_text() == "b.jpg.xmp"
    assert not (photos / "c.jpg.xmp").exists()
    target = tmp_path / "sorted"
    sort_images(photos, paths[:1], [2], {}, target, link=False, xmp=True)
    assert keyword(target / "2" / "a.jpg.xmp") == "cluster 2"
