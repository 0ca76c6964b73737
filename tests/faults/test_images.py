"""Image files that would hang, flood or fill the memory are refused, or read in little of it."""

import contextlib
import io
import os
import struct
import subprocess
import sys
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from probagg.app.embed.features import pictures_of
from probagg.data import photo
from probagg.data.images import FolderImages
from probagg.data.photo import BadImage, decode_photo, to_channels

pillow_heif.register_heif_opener()  # to write HEIC files
SIDE = 13_300  # squared, it is just under the limit at which Pillow refuses
LARGE = """
import sys, numpy
from pathlib import Path
from probagg.data.photo import decode_photo
decode_photo(Path(sys.argv[1]), 32, 3)
lines = Path("/proc/self/status").read_text().splitlines()
print(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20)
"""


def with_metadata(megabytes):
    """Return a JPEG with as much EXIF, in segments of 64 kB."""
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16)).save(buffer, "JPEG")
    segment = b"\xff\xe1" + struct.pack(">H", 65_535) + b"Exif\0\0".ljust(65_533, b"\0")
    return b"\xff\xd8" + segment * (megabytes * 16) + buffer.getvalue()[2:]


def with_bad_tags(n):
    """Return a TIFF of one pixel with `n` tags that Pillow warns of."""
    buffer = io.BytesIO()
    Image.new("L", (1, 1)).save(buffer, "TIFF")
    start = int.from_bytes(buffer.getvalue()[4:8], "little")
    old = buffer.getvalue()
    count = int.from_bytes(old[start : start + 2], "little")
    good = old[start + 2 : start + 2 + 12 * count]
    bad = b"".join(struct.pack("<HHII", 40_000 + i % 20_000, 2, 100, 2**31) for i in range(n))
    directory = struct.pack("<H", n + count) + good + bad + bytes(4)
    return old[:4] + struct.pack("<I", len(old)) + old[8:] + directory


def test_megabytes_of_metadata_are_refused_at_once(tmp_path):
    """Pillow joins the segments one by one: 60 MB took more than a minute."""
    (tmp_path / "a.jpg").write_bytes(with_metadata(60))
    began = time.perf_counter()
    with pytest.raises(BadImage, match="more than 17 MB of metadata"):
        decode_photo(tmp_path / "a.jpg", 8, 3)
    assert time.perf_counter() - began < 2.0


def of_scans(n, side):
    """Return a progressive JPEG whose last scan is there n times more."""
    buffer = io.BytesIO()
    Image.new("L", (side, side)).save(buffer, "JPEG", progressive=True)
    whole = buffer.getvalue()
    return whole[:-2] + whole[whole.rindex(b"\xff\xda") : -2] * n + whole[-2:]


def of_segments(n):
    return b"\xff\xd8" + b"\xff\xe0\0\2" * n + of_scans(0, 16)[2:]


def of_padding(n):
    return b"\xff\xd8" + b"\xff" * n + of_scans(0, 16)[2:]


def of_short_metadata(n):
    segment = b"\xff\xe1" + struct.pack(">H", 242) + b"Exif\0\0".ljust(240, b"\0")
    return b"\xff\xd8" + segment * n + of_scans(0, 16)[2:]


def of_chunks(n):
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16)).save(buffer, "PNG")
    whole = buffer.getvalue()
    return (
        whole[:33] + (bytes(4) + b"abCd" + struct.pack(">I", zlib.crc32(b"abCd"))) * n + whole[33:]
    )


HOSTILE = {
    "scans.jpg": (lambda: of_scans(4_000, 3_000), "scans of 9,000,000 pixels"),
    "segments.jpg": (lambda: of_segments(2_000_000), "more than 1,024 segments"),
    "padding.jpg": (lambda: of_padding(20_000_000), "more than 1,024 segments"),
    "short.jpg": (lambda: of_short_metadata(40_000), "more than 1,024 segments"),
    "chunks.png": (lambda: of_chunks(1_000_000), "too many parts"),
    "digits.jpg": (lambda: b"P3\n4000 1000\n255\n" + b"1 2 3 " * 4_000_000, "not an image in a"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("in_memory", [False, True])
def test_work_without_end_is_refused_in_two_seconds(tmp_path, name, in_memory):
    """Small files of few pixels that Pillow decodes for a minute and more."""
    make, why = HOSTILE[name]
    (tmp_path / name).write_bytes(make())
    began = time.process_time()
    with pytest.raises(BadImage, match=why):
        decode_photo(io.BytesIO(make()) if in_memory else tmp_path / name, 8, 3)
    assert time.process_time() - began < 2.0


def test_usual_work_is_done(tmp_path):
    """As many scans as programs make, and the small parts of a large PNG."""
    (tmp_path / "a.jpg").write_bytes(of_scans(12, 500))
    (tmp_path / "b.png").write_bytes(of_chunks(10_000))
    for name in ("a.jpg", "b.png"):
        assert decode_photo(tmp_path / name, 8, 3).shape == (8, 8, 3)


def test_usual_metadata_are_read(tmp_path):
    (tmp_path / "a.jpg").write_bytes(with_metadata(2))
    assert decode_photo(tmp_path / "a.jpg", 8, 3).shape == (8, 8, 3)


@pytest.mark.parametrize("name", ["a.heic", "a.avif"])
def test_a_damaged_file_is_refused_or_read_and_never_hangs(tmp_path, name):
    """Each of the first bytes, which hold offsets and lengths, set to its largest value."""
    pixels = np.zeros((64, 64, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "HEIF" if name == "a.heic" else "AVIF")
    whole = buffer.getvalue()
    began = time.perf_counter()
    for at in range(0, min(len(whole), 600), 3):
        (tmp_path / name).write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        with contextlib.suppress(BadImage):
            decode_photo(tmp_path / name, 8, 3)
    assert time.perf_counter() - began < 20.0


@pytest.mark.parametrize("name", ["a.png", "a.heic"])
@pytest.mark.parametrize("kind", ["pipe", "sparse", "pseudo", "empty", "device"])
def test_what_has_no_end_is_not_read(tmp_path, kind, name):
    """Neither to decode it nor for the digest under which features are cached."""
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pseudo":
        path.symlink_to("/proc/kmsg" if os.path.exists("/proc/kmsg") else "/dev/null")
    else:
        with path.open("wb") as file:
            file.truncate(10**12 if kind == "sparse" else 0)
    with pytest.raises(BadImage, match=r"regular file|is empty|at most 1\.07"):
        decode_photo(path, 8, 3)
    images = FolderImages(tmp_path, 8, paths=[name])
    item = pictures_of(images, None).items(np.arange(1))[0]
    assert item.digest is None


def test_thousands_of_bad_tags_do_not_flood(tmp_path):
    (tmp_path / "a.tif").write_bytes(with_bad_tags(60_000))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert decode_photo(tmp_path / "a.tif", 8, 3).shape == (8, 8, 3)
    assert not caught


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "I;16", "L", "RGB", "1", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_bands_give_the_same_pixels(monkeypatch, mode, channels):
    pixels = np.random.default_rng(0).integers(0, 256, (61, 47, 4), np.uint8)
    image = Image.fromarray(pixels)
    if mode == "I;16":
        image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 255)
    else:
        image = (image.convert("RGB") if mode in ("CMYK", "1") else image).convert(mode)
    if mode == "P":
        image.info["transparency"] = 3
    whole = np.asarray(to_channels(image, channels))
    monkeypatch.setattr(photo, "LARGE", 500)
    np.testing.assert_array_equal(np.asarray(to_channels(image, channels)), whole)


def test_large_images_are_decoded_one_at_a_time(tmp_path, monkeypatch):
    """Each may take a gigabyte, and photos are read in threads."""
    turn, inside, most = photo._turn, [], []

    def slow(image):
        inside.append(image)
        most.append(len(inside))
        time.sleep(0.05)
        inside.pop()
        return turn(image)

    monkeypatch.setattr(photo, "_turn", slow)
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    for path in paths:
        Image.new("RGB", (40, 40)).save(path)
    for large in (photo.LARGE, 100):
        monkeypatch.setattr(photo, "LARGE", large)
        most.clear()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda path: decode_photo(path, 8, 3), paths))
        assert (max(most) == 1) == (large == 100)


@pytest.mark.parametrize("suffix", ["webp", "avif", "heic"])
def test_formats_with_costly_decoders_have_a_lower_limit(tmp_path, monkeypatch, suffix):
    Image.new("RGB", (40, 40)).save(tmp_path / f"a.{suffix}")
    monkeypatch.setattr(photo, "MAX_COMPLEX", 1000)
    with pytest.raises(BadImage, match="it has 1,600 pixels, but 1,000 at most"):
        decode_photo(tmp_path / f"a.{suffix}", 8, 3)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_an_image_just_under_the_limit_of_pixels_takes_less_than_two_gigabytes(tmp_path):
    """It took 4.1 GB: four copies of 177 million pixels."""
    Image.new("RGBA", (SIDE, SIDE)).save(tmp_path / "a.png", compress_level=1)
    command = [sys.executable, "-c", LARGE, tmp_path / "a.png"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 2.0
