"""The data of the benchmarks: images, rows and features, from the folder that PROBAGG_DATA names.

CIFAR is packed as sheets of 50 x 50 tiles in two zip files, photos as JPEGs joined in one .npz,
rows and small images as X and y in one. Where a packing is missing, the library downloads the set
if it can. ImageNet's classes are also read from its own folders, which PROBAGG_IMAGENET names, and
Imagenette from its release, imagenette2-160.

Features of images, one row each, are from networks that are trained already:

    cifar10         cifar10_simclr.npz, also called cifar10-simclr
    imagenette      EfficientNet-Lite0 on photos of 96 pixels, kept in probagg's cache of features
    imagenet-dogs   the same
    NAME            NAME.npz (X and y) in the folder that PROBAGG_FEATURES names, before the others;
                    `python -m benchmarks training --features` writes such files

The paper's features are of SimCLR on each set. EfficientNet-Lite0 was trained with ImageNet's
labels, so its rows compare methods with each other, not with the paper.
"""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np

from probagg.data.arrays import Matrix, read_numpy
from probagg.data.images import ArrayImages, FolderImages, ImageSet
from probagg.data.opening import open_images, open_source
from probagg.data.photo import decode_photo
from probagg.errors import NoData
from probagg.threads import in_threads, stack_in_threads

TILES, SIDE = 50, 32  # tiles per row and column of a sheet, pixels of a tile
SHEETS = {"cifar10": ("cifar10", "y.npy"), "cifar100-20": ("cifar100", "coarse.npy")}
PHOTOS = {"imagenette": "imagenette_96.npz", "imagenet-dogs": "imagenet_dogs_96.npz"}
PACKED = {"pendigits": "pendigits.npz", "isolet": "isolet.npz", "mnist": "mnist.npz",
          "mnist-test": "mnist.npz", "coil100": "coil100_32.npz"}  # fmt: skip
OPENML = {"pendigits": 32, "isolet": 300}
SYNSETS = {
    "imagenet10": (
        "n02056570 n02085936 n02128757 n02690373 n02692877 n03095699 n04254680 n04285008 "
        "n04467665 n07747607"
    ),
    "imagenet-dogs": (
        "n02085936 n02086646 n02088238 n02091467 n02097130 n02099601 n02101388 n02101556 "
        "n02102177 n02105056 n02105412 n02105855 n02107142 n02110958 n02112137"
    ),
    "imagenette": (
        "n01440764 n02102040 n02979186 n03000684 n03028079 n03394916 n03417042 n03425413 "
        "n03445777 n03888257"
    ),
}
BACKBONE = "efficientnet-lite0"
Rows = tuple[np.ndarray, np.ndarray]  # and their classes


def open_lab_rows(name: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Return rows in float32, classes and metric of a matrix, or of features of images."""
    if name in PHOTOS or name == "cifar10-simclr" or _given(name).is_file():
        return *load_features(name)[:2], "cosine"
    matrix = lab_matrix(name)
    return np.asarray(matrix.X, np.float32), np.asarray(matrix.y), "sqeuclidean"


def some_rows(name: str, most: int = 5_000) -> Rows:
    """Return at most 5,000 random rows of a set, and their classes, numbered from 0.

    After a colon the name says what the rows are, such as imagenette:lite0 or cifar10:simclr.
    """
    base, _, kind = name.partition(":")
    X, y, _ = open_lab_rows(f"{base}-simclr" if kind == "simclr" else base)
    rows = np.arange(len(X))
    if len(X) > most:
        rows = np.sort(np.random.default_rng(0).choice(len(X), most, replace=False))
    return X[rows], np.unique(y[rows], return_inverse=True)[1]


def lab_matrix(name: str) -> Matrix:
    """Return the rows of a packed set, flattened, or of a set that the library knows."""
    packed = _packed(name)
    if packed is None:
        found = open_source(name, prefer="matrix")
        assert isinstance(found, Matrix)
        return found
    X, y = packed
    return Matrix(name, X.reshape(len(X), -1).astype(np.float32), y)


def _packed(name: str) -> Rows | None:
    """Return X and y of a set in one .npz file, or None where there is no such file."""
    path = _folder("PROBAGG_DATA") / PACKED.get(name, "")
    if not path.is_file():
        if name == "coil100":
            raise NoData(f"{path} does not exist. docs/reproduce.md says how to make it.")
        if name in OPENML:
            from sklearn.datasets import fetch_openml

            found = fetch_openml(data_id=OPENML[name], as_frame=False, parser="liac-arff")
            return found.data, np.unique(found.target, return_inverse=True)[1]
        if name == "mnist-test":
            images = open_images("mnist")
            assert images.y is not None
            return images.read(np.arange(60_000, 70_000)), images.y[60_000:]
        return None
    X, y = read_numpy(path)
    assert y is not None
    first = len(X) - 10_000 if name == "mnist-test" else 0
    return X[first:], y[first:]


def load_features(name: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Return features and classes of an image set, and where the features are from."""
    packed = _folder("PROBAGG_DATA") / f"{name.removesuffix('-simclr')}_simclr.npz"
    for path in (_given(name), packed):
        if path.is_file():
            return *read_features(path), path.name
    if name not in PHOTOS:
        raise NoData(
            f"{name!r} needs {packed.name} in the folder that PROBAGG_DATA names, or {name}.npz "
            "with X and y in the folder that PROBAGG_FEATURES names. python -m benchmarks training "
            "--stages pretrain --features writes such a file."
        )
    return *photo_features(open_lab_images(name)), BACKBONE


def read_features(path: Path) -> Rows:
    """Return X in float32 and y of a file."""
    with np.load(path) as arrays:
        return arrays["X"].astype(np.float32), arrays["y"]


def photo_features(images: ImageSet) -> Rows:
    """Return EfficientNet-Lite0's features of photos, and their classes."""
    from probagg.app.embed.features import extract_features
    from probagg.app.embed.opening import open_backbone

    assert images.y is not None
    found = extract_features(images, open_backbone(BACKBONE))
    return found.X, np.asarray(images.y)[found.rows]


def _given(name: str) -> Path:
    return _folder("PROBAGG_FEATURES") / f"{name}.npz"


def _folder(variable: str) -> Path:
    return Path(os.environ.get(variable) or "missing").expanduser()


def open_lab_images(source: str) -> ImageSet:
    """Return a packed image set by name, or whatever else `open_images` opens."""
    folder = _folder("PROBAGG_DATA")
    if source in SHEETS:
        prefix, labels = SHEETS[source]
        parts = [folder / f"{prefix}_part{part}.zip" for part in (0, 1)]
        if all(part.is_file() for part in parts):
            return read_sheets(parts, labels, source)
    if source in PHOTOS and (folder / PHOTOS[source]).is_file():
        return read_photos(folder / PHOTOS[source], source)
    if source in SYNSETS:
        return read_synsets(source)
    packed = _packed(source)
    return open_images(source) if packed is None else ArrayImages(*packed, name=source)


def read_synsets(name: str) -> FolderImages:
    """Return classes of ImageNet from their folders, `n02056570/*.JPEG`; in train/, too."""
    of_release = name == "imagenette"
    folder, parts, size = _folder("PROBAGG_IMAGENET"), ("", "train"), 224
    if of_release:
        folder, parts, size = _folder("PROBAGG_DATA") / "imagenette2-160", ("train", "val"), 160
    synsets = sorted(SYNSETS[name].split())
    found = {
        path.relative_to(folder).as_posix(): k
        for k, synset in enumerate(synsets)
        for part in parts
        for path in (folder / part / synset).glob("*.JPEG")
    }
    missing = [synset for k, synset in enumerate(synsets) if k not in found.values()]
    if missing:
        place = "PROBAGG_DATA" if of_release else "PROBAGG_IMAGENET"
        raise NoData(
            f"{folder} lacks the ImageNet classes {', '.join(missing)}. Set {place} to the folder "
            f"with {'imagenette2-160' if of_release else 'one sub-folder per class'}."
        )
    images = FolderImages(folder, size, name=name, paths=sorted(found))
    images.y, images.class_names = np.array([found[path] for path in images.paths]), synsets
    return images


def read_sheets(archives: list[Path], labels: str, name: str) -> ArrayImages:
    """Return the tiles of all sheets, row by row, with the classes in the file `labels`."""
    sheets, classes = [], []
    for path in archives:
        with zipfile.ZipFile(path) as archive:
            names = sorted(entry for entry in archive.namelist() if entry.endswith(".webp"))
            sheets += [archive.read(entry) for entry in names]
            classes.append(np.frombuffer(archive.read(labels), np.uint8))  # one byte per image

    def tiles(data: bytes) -> np.ndarray:
        sheet = decode_photo(io.BytesIO(data), None, 3)
        return sheet.reshape(TILES, SIDE, TILES, SIDE, 3).swapaxes(1, 2)

    X = stack_in_threads(tiles, sheets, (TILES, TILES, SIDE, SIDE, 3))
    return ArrayImages(X.reshape(-1, SIDE, SIDE, 3), np.concatenate(classes), name=name)


def read_photos(path: Path, name: str) -> ArrayImages:
    """Return JPEGs of one size that are joined in `data`, each starting where `off` says."""
    with np.load(path, allow_pickle=False) as arrays:
        data, off, y, names = (arrays[key] for key in ("data", "off", "y", "classes"))

    def photo(row: int) -> np.ndarray:
        return decode_photo(io.BytesIO(data[off[row] : off[row + 1]].tobytes()), None, 3)

    X = np.stack(list(in_threads(photo, range(len(y)))))
    class_names = [str(entry).partition(" ")[2] for entry in names]  # "n01440764 tench"
    return ArrayImages(X, y, name=name, class_names=class_names)
