"""Features of a set: order, bad files, formats, too little memory."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from probagg.app.embed.backbone import BackboneError, Preprocessing
from probagg.app.embed.features import _Extraction, extract_features
from probagg.data.images import ArrayImages, FolderImages
from probagg.errors import NoData


def test_features_are_in_the_order_of_the_set(photos, backbone):
    found = extract_features(photos, backbone, batch_size=3)
    one_by_one = [
        backbone.network(backbone.prepare(Image.open(photos / path))[None])[0]
        for path in FolderImages(photos, 8).paths
    ]
    np.testing.assert_allclose(found.X, one_by_one, atol=1e-6)
    assert found.X.dtype == np.float32
    assert found.rows.tolist() == list(range(10))
    assert (found.bad, found.cached) == ([], 0)


def test_the_batch_size_does_not_change_the_features(photos, backbone):
    one, seven = (extract_features(photos, backbone, cache=False, batch_size=n).X for n in (1, 7))
    np.testing.assert_allclose(one, seven, rtol=1e-5, atol=1e-6)


def test_files_are_decoded_whole_whatever_the_size_of_the_set(photos, backbone):
    """A set opened at 8 pixels for another purpose must not blur the backbone's input."""
    small = extract_features(FolderImages(photos, 8, 1), backbone, cache=False).X
    np.testing.assert_array_equal(small, extract_features(photos, backbone, cache=False).X)
    listed = extract_features(sorted(photos.iterdir()), backbone, cache=False).X
    np.testing.assert_array_equal(listed, small)


def test_arrays_and_files_of_the_same_pixels_have_the_same_features(photos, backbone, tmp_path):
    array = np.stack([np.asarray(Image.open(p).resize((48, 48))) for p in sorted(photos.iterdir())])
    found = extract_features(ArrayImages(array), backbone)
    (tmp_path / "same").mkdir()
    for number, pixels in enumerate(array):
        Image.fromarray(pixels).save(tmp_path / "same" / f"{number}.png")
    np.testing.assert_allclose(found.X, extract_features(tmp_path / "same", backbone).X, atol=1e-6)
    grey = extract_features(array[..., 0], backbone).X
    as_colour = extract_features(np.repeat(array[..., :1], 3, axis=3), backbone).X
    np.testing.assert_array_equal(grey, as_colour)


def test_bad_files_are_skipped_and_named(photos, backbone, network):
    (photos / "2.png").write_bytes(b"no picture")
    (photos / "5.png").write_bytes((photos / "5.png").read_bytes()[:60])
    (photos / "gone.png").symlink_to(photos / "nowhere.png")
    os.mkfifo(photos / "pipe.png")
    found = extract_features(photos, backbone, batch_size=4)
    assert found.rows.tolist() == [0, 1, 3, 4, 6, 7, 8, 9]
    assert found.X.shape == (8, 5)
    reasons = dict(found.bad)
    assert sorted(reasons) == ["2.png", "5.png", "gone.png", "pipe.png"]
    assert reasons["2.png"] == "it is not an image in a known format"
    assert "broken link" in reasons["gone.png"]
    again = extract_features(photos, backbone, batch_size=4)
    assert (again.cached, again.bad, network.seen) == (8, found.bad, 8), "bad ones are tried again"
    np.testing.assert_array_equal(again.X, found.X)


def test_a_set_of_bad_files_is_an_error(tmp_path, backbone):
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(NoData, match=r"None of the 1 images of .* can be read; a\.png: it is not"):
        extract_features(tmp_path, backbone)


def test_every_format_of_a_picture_has_the_same_features(tmp_path, backbone):
    """Grey, palette, CMYK and transparent files of one picture agree; a turned one differs."""
    grey = Image.fromarray(np.kron([[10, 80], [160, 240]], np.ones((24, 24))).astype(np.uint8))
    grey.save(tmp_path / "a.png")
    grey.convert("RGB").save(tmp_path / "b.bmp")
    grey.convert("CMYK").save(tmp_path / "c.jpg", quality=98)
    grey.convert("RGBA").save(tmp_path / "d.png")
    grey.convert("P").save(tmp_path / "e.gif")
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = grey.transpose(Image.Transpose.ROTATE_90)
    turned.save(tmp_path / "f.jpg", exif=exif, quality=98)
    turned.save(tmp_path / "g.jpg", quality=98)
    X = extract_features(tmp_path, backbone).X
    np.testing.assert_allclose(X[1:6], np.tile(X[0], (5, 1)), atol=0.03)
    assert np.abs(X[6] - X[0]).max() > 0.2


def test_large_jpegs_decoded_small_have_the_same_features(tmp_path, backbone):
    """JPEG's draft mode is only an optimisation."""
    waves = 127 + 100 * np.sin(np.arange(1200) / 90)
    pixels = np.repeat((waves[:, None] / 2 + waves[None, :900] / 2)[..., None], 3, 2)
    photo = Image.fromarray(pixels.astype(np.uint8))
    photo.save(tmp_path / "a.jpg", quality=95)
    photo.save(tmp_path / "b.png")
    short, long = extract_features(tmp_path, backbone).X
    np.testing.assert_allclose(short, long, atol=0.02)


def test_a_long_strip_is_cropped_before_it_is_scaled(tmp_path, backbone):
    """Scaled by its shorter side, this one would take 5 GB."""
    strip = np.full((1, 50_000, 3), 90, np.uint8)
    Image.fromarray(strip).save(tmp_path / "a.png")
    Image.new("RGB", (40, 40), (90, 90, 90)).save(tmp_path / "b.png")
    whole = backbone.prepare(Image.open(tmp_path / "a.png"))
    assert whole.shape == (3, 32, 32)
    X = extract_features(tmp_path, backbone).X
    np.testing.assert_allclose(X[0], X[1], atol=1e-5)


def test_a_picture_on_which_the_transform_fails_is_skipped(photos, network, backbone_of):
    class Picky(Preprocessing):
        def __call__(self, image):
            if image.width == 44:
                raise ArithmeticError("no 44")
            return super().__call__(image)

    found = extract_features(photos, backbone_of(network, Picky(32, 36)))
    assert found.bad == [("4.png", "the backbone's transform fails on it (no 44)")]
    assert len(found.X) == 9


def test_progress_counts_cached_images_as_done(photos, backbone, write_photo):
    seen = []
    extract_features(photos, backbone, batch_size=4, progress=lambda *counts: seen.append(counts))
    assert seen == [(0, 10), (4, 10), (8, 10), (10, 10)]
    write_photo(photos / "new.png", 99)
    seen.clear()
    extract_features(photos, backbone, batch_size=4, progress=lambda *counts: seen.append(counts))
    assert seen == [(10, 11), (11, 11)]


@pytest.mark.parametrize("most", [1, 3])
def test_batches_shrink_when_memory_runs_out(photos, backbone, network, most):
    whole = extract_features(photos, backbone, cache=False, batch_size=8).X
    network.most, network.batches = most, []
    small = extract_features(photos, backbone, cache=False, batch_size=8).X
    np.testing.assert_allclose(small, whole, rtol=1e-5, atol=1e-6)
    assert max(network.batches) == {1: 1, 3: 2}[most], "8, 4, 2, 1"
    assert network.seen == 10


def test_too_little_memory_for_one_image_is_an_error_in_one_line(photos, backbone, network):
    network.most = 0
    with pytest.raises(BackboneError, match=r"not enough memory for one image in counting.*--dev"):
        extract_features(photos, backbone)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: not enough memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"),
        RuntimeError("[ONNXRuntimeError] : 6 : Failed to allocate memory for requested buffer"),
        RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : std::bad_alloc"),
    ],
)
def test_out_of_memory_errors_of_every_engine_are_recognised(photos, backbone, network, error):
    def forward(images):
        if len(images) > 1:
            raise error
        return images.mean((2, 3)).repeat(1, 2)[:, :5]

    network.forward = forward
    assert extract_features(photos, backbone, cache=False, batch_size=4).X.shape == (10, 5)


def test_a_batch_that_another_thread_has_halved_meanwhile_is_tried_again(photos, backbone, network):
    """Two threads fail with two images each: the second sees the size of one that the first set."""
    both = threading.Barrier(2, timeout=20)

    def forward(images):
        if len(images) > 1:
            both.wait()
            raise MemoryError
        return images.mean((2, 3)).repeat(1, 2)[:, :5]

    network.forward = forward
    with ThreadPoolExecutor(2) as pool:
        extraction = _Extraction(FolderImages(photos, 32), backbone, cache=False, batch_size=2)
        batches = [np.zeros((2, 3, 32, 32), np.float32)] * 2
        assert [len(found) for found in pool.map(extraction.infer, batches)] == [2, 2]


def test_other_errors_of_a_network_are_raised(photos, backbone, network):
    def forward(images):
        raise RuntimeError("size mismatch")

    network.forward = forward
    with pytest.raises(RuntimeError, match="size mismatch"):
        extract_features(photos, backbone)


def test_blank_images_are_named_also_from_the_cache(tmp_path, backbone):
    """A camera's noise on one colour is no picture."""
    rng = np.random.default_rng(0)
    for name, pixels in (
        ("plain", np.full((64, 64, 3), 120)),
        ("noisy", rng.normal(20, 1.5, (640, 480, 3))),
        ("drawn", rng.integers(0, 255, (64, 64, 3))),
    ):
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"{name}.png")
    for cached in (0, 3):
        found = extract_features(tmp_path, backbone)
        assert (found.blank, found.cached) == (["noisy.png", "plain.png"], cached)
