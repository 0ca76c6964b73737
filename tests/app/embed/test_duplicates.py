import csv

import numpy as np
import pytest
from commands import reseal
from PIL import Image, ImageFilter

import probagg
from probagg.app.embed import duplicates
from probagg.app.embed.duplicates import best_photos, find_duplicates, similar_pairs, stars
from probagg.app.run.contents import read_contents
from probagg.app.run.folder import RunFolderError
from probagg.data.images import ArrayImages
from probagg.data.opening import open_images
from probagg.errors import InputError

K, SIZE = 3, 64


def scene(seed):
    """A smooth random picture."""
    noise = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((SIZE, SIZE), Image.Resampling.BICUBIC)


def smaller(image):
    return image.resize((SIZE // 2, SIZE // 2))


def cropped(image):
    return image.crop((1, 2, SIZE - 2, SIZE - 1))


def brighter(image):
    return image.point(lambda value: min(255, round(1.1 * value)))


@pytest.mark.parametrize("change", [smaller, cropped, brighter])
def test_a_changed_copy_is_found_and_another_photo_with_the_same_features_is_not(change):
    """Features alone would call all three the same."""
    pictures = [scene(0), change(scene(0)).resize((SIZE, SIZE)), scene(1)]
    images = ArrayImages(np.stack([np.asarray(picture) for picture in pictures]))
    found = find_duplicates(np.ones((3, 8)), images, ["0", "1", "2"])
    assert found == [[0, 1]]


def test_the_same_pixels_with_other_features_are_not_compared():
    images = ArrayImages(np.stack([np.asarray(scene(0))] * 2))
    assert find_duplicates(np.eye(2), images, ["0", "1"]) == []


def test_a_file_that_is_gone_is_like_no_other(tmp_path):
    for name in "abc":
        scene(0).save(tmp_path / f"{name}.png")
    images = open_images(tmp_path)
    (tmp_path / "b.png").unlink()
    assert find_duplicates(np.ones((3, 4)), images, images.paths) == [[0, 2]]
    (tmp_path / "a.png").unlink()
    (tmp_path / "c.png").unlink()
    assert find_duplicates(np.ones((3, 4)), images, images.paths) == []


def pairs_of(X, progress=None):
    return np.concatenate([pairs for pairs, _ in similar_pairs(X, progress)])


def test_blocks_give_the_pairs_of_the_whole_matrix(monkeypatch):
    X = np.random.default_rng(0).normal(size=(50, 3))
    whole = pairs_of(X)
    monkeypatch.setattr(duplicates, "BLOCK", 7)
    steps = []
    parts = pairs_of(X, lambda done, total: steps.append((done, total)))
    assert len(whole) > 10
    assert sorted(parts.tolist()) == sorted(whole.tolist())
    assert steps[-1] == (50, 50)
    U = X / np.linalg.norm(X, axis=1, keepdims=True)
    expected = np.argwhere(np.triu(U @ U.T >= duplicates.COSINE, 1))
    assert sorted(whole.tolist()) == expected.tolist()


def test_thousands_of_equal_features_do_not_make_millions_of_pairs(monkeypatch):
    """Each photo then keeps its nearest ones, or the pairs would fill the memory."""
    X = np.random.default_rng(0).normal(1.0, 0.01, (300, 8))
    monkeypatch.setattr(duplicates, "MOST", 5)
    assert len(pairs_of(X)) <= 5 * 300


def test_every_member_matches_its_representative():
    chain = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]])
    found = stars(chain, [1] * 7)
    edges = {tuple(pair) for pair in chain.tolist()}
    for row, first in enumerate(found):
        assert row == first or (min(row, first), max(row, first)) in edges
    assert len(np.unique(found)) < 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Thirty photos of three colours; the first has two copies, one of them with an odd name."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(30):
        tint = np.zeros(3)
        tint[number % K] = 120.0
        pixels = np.clip(np.asarray(scene(number)) * 0.5 + tint, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:02d}.jpg", quality=95)
    first = Image.open(folder / "00.jpg")
    first.save(folder / "00-again.jpg", quality=60)
    smaller(first).save(folder / "=1+1.png")
    return folder


def run_of(folder, out, **options):
    return probagg.cluster(folder, K, out=out, backbone="efficientnet-lite0", **options)


def test_a_run_lists_its_near_duplicates_and_the_page_folds_them(folder, tmp_path):
    run = run_of(folder, tmp_path / "run")
    with (run.path / "duplicates.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["group"] for row in rows] == ["0"] * 3
    assert {row["path"] for row in rows} == {"00-again.jpg", "00.jpg", "./=1+1.png"}
    (first,) = {row["representative"] for row in rows}
    assert first == "00.jpg"  # the shortest name
    assert run.result["n_duplicates"] == 2
    contents = read_contents(run.path)
    name = first.removeprefix("./")
    assert contents.copies == {contents.assigned.names.index(name): 2}
    html = (run.path / "report.html").read_text()
    assert ">+2</span>" in html
    hidden = {"00-again.jpg", "00.jpg", "=1+1.png"} - {name}
    assert not any(f'alt="{other}' in html for other in hidden)


def test_black_and_white_are_no_near_duplicates_but_copies_of_black_are(folder, tmp_path):
    """Differences of one colour are all the same."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(20):
        (photos / f"{number:02d}.jpg").write_bytes((folder / f"{number:02d}.jpg").read_bytes())
    for colour in ("black", "white"):
        Image.new("RGB", (SIZE, SIZE), colour).save(photos / f"{colour}.jpg")
    run = run_of(photos, tmp_path / "run", report=False)
    assert run.result["n_duplicates"] == 0
    assert run.sort_images(tmp_path / "best", keep_best=True) == 22
    (photos / "black-again.jpg").write_bytes((photos / "black.jpg").read_bytes())
    again = run_of(photos, tmp_path / "again", report=False)
    with (again.path / "duplicates.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["path"] for row in rows} == {"black.jpg", "black-again.jpg"}
    assert again.sort_images(tmp_path / "best of again", keep_best=True) == 22


def test_blank_arrays_are_near_duplicates_where_their_pixels_are_equal():
    pixels = np.stack([np.full((SIZE, SIZE, 3), grey, np.uint8) for grey in (0, 255, 0)])
    found = find_duplicates(
        np.ones((3, 8)), ArrayImages(pixels), ["0", "1", "2"], blank={"0", "1", "2"}
    )
    assert found == [[0, 2]]


def test_a_damaged_list_is_an_error_that_names_it(folder, tmp_path):
    run = run_of(folder, tmp_path / "run", report=False)
    (run.path / "duplicates.csv").write_text("group,path,representative\n0,gone.jpg,00.jpg\n")
    reseal(run.path)
    with pytest.raises(RunFolderError, match=r"duplicates\.csv.*gone\.jpg"):
        read_contents(run.path)


def test_more_clusters_than_photos_that_can_be_read_are_refused(tmp_path):
    for number in range(2):
        scene(number).save(tmp_path / f"{number}.png")
    (tmp_path / "broken.png").write_text("no picture")
    with pytest.raises(InputError, match="2 images that can be read, which cannot form 3 clusters"):
        run_of(tmp_path, tmp_path / "run")


def test_the_best_of_near_duplicates_is_the_largest_of_the_sharp_ones(tmp_path):
    """A small copy, one that was enlarged from it, and a blurred one are not the best."""
    noise = np.random.default_rng(0).integers(0, 256, (400, 400), dtype=np.uint8)
    sharp = Image.fromarray(noise).filter(ImageFilter.GaussianBlur(1))
    small = sharp.resize((300, 300), Image.Resampling.LANCZOS)
    kinds = {
        "blurred": sharp.filter(ImageFilter.GaussianBlur(4)),
        "enlarged": sharp.resize((60, 60)).resize((800, 800)),
        "sharp": sharp,
        "small": small,
        "other": sharp,
    }
    paths = [tmp_path / f"{name}.png" for name in kinds]
    for path, image in zip(paths, kinds.values(), strict=True):
        image.save(path)
    assert best_photos(paths, [7, 7, 7, 7, 4]) == [2, 4]
    paths[2].write_bytes(b"broken")
    assert best_photos(paths, [7, 7, 7, 7, 4]) == [3, 4]
