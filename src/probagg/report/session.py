"""A run under review: its samples as plain data, its thumbnails, and the review that is saved."""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import itertools
import json
import math
import threading
import tomllib
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from probagg.data.decoding import to_picture
from probagg.data.images import ImageSet
from probagg.data.opening import open_images
from probagg.errors import InputError, NoData
from probagg.review import FILE, Review, ReviewError, n_clusters
from probagg.run.folder import RunFolderError

THUMBNAIL = 192  # pixels: sharp at the largest size the page shows, on fine screens nearly so
_KEPT = 4096  # thumbnails in memory, about 30 MB


class StaleReview(RuntimeError):
    """Somebody else saved in between; the message says so."""


class Session:
    """What the review page reads and the one thing it writes, `review.json`.

    A sample is known by its line in `assignments.csv`, counted from 0: no path comes from outside.
    """

    def __init__(self, run: str | PathLike[str]) -> None:
        self.run = Path(run)
        self.n_clusters = n_clusters(self.run)
        self._columns = _columns(self.run / "assignments.csv", self.n_clusters)
        self.samples: list[str] = self._columns["name"]
        self._known = frozenset(self.samples)
        Review.read(self.run)  # a broken review is told before a page opens
        self._saving = threading.Lock()
        self._images, self._trouble = self._open_images()

    def _open_images(self) -> tuple[ImageSet | None, str | None]:
        """The run's images, or the reason why they cannot be shown; neither for a matrix."""
        config = tomllib.loads((self.run / "config.toml").read_text(encoding="utf-8"))
        if config.get("kind") != "images":
            return None, None
        try:
            images = open_images(config["source"])
        except (NoData, OSError, ImportError) as error:
            return None, str(error)
        if self._columns["key"] == "row" and len(images) != len(self.samples):
            what = f"{config['source']} holds {len(images)} images, but {len(self.samples)}"
            return None, f"{what} were clustered."
        if images.paths is not None or max(images.size or (0,)) > THUMBNAIL:
            images = open_images(images, size=THUMBNAIL)
        return images, None

    @functools.cached_property
    def _positions(self) -> list[int | None]:
        """Where each sample is in the image set; None for a file that was there and is not now."""
        if self._images is None:
            return [None] * len(self.samples)
        names = self._images.paths if self._columns["key"] == "path" else None
        places = dict(zip(names or map(str, range(len(self._images))), itertools.count()))
        return [places.get(name) for name in self.samples]

    @functools.lru_cache(maxsize=_KEPT)  # noqa: B019  a session lives as long as its server
    def thumbnail(self, sample: int) -> bytes | None:
        """The JPEG of a sample; None where there is no picture of it (any more)."""
        if not 0 <= sample < len(self.samples):
            return None
        place = self._positions[sample]
        if self._images is None or place is None:
            return None
        try:
            pixels = self._images.read(np.array([place]))[0]
        except (NoData, OSError):
            return None
        picture = to_picture(pixels)
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=95 if max(picture.size) <= 48 else 85)
        return file.getvalue()

    def describe(self) -> dict[str, Any]:
        """All that the page shows: columns of the samples, overlaps, and the review so far."""
        with self._saving:
            review, version = Review.read(self.run).to_json(), self.version()
        return {
            "run": self.run.resolve().name,
            "n_clusters": self.n_clusters,
            "pictures": self._images is not None,
            "trouble": self._trouble,
            "samples": self._columns,
            "overlaps": self._overlaps(),
            "review": review,
            "version": version,
        }

    def _overlaps(self) -> list[dict[str, Any]]:
        """Pairs of clusters, each once, and how many samples are borderline between them."""
        path = self.run / "overlaps.csv"
        pairs = {
            tuple(sorted((int(row["first"]), int(row["second"])))): int(row["samples"])
            for row in (_read_table(path) if path.exists() else [])
        }
        return [{"pair": pair, "samples": samples} for pair, samples in pairs.items()]

    def version(self) -> str:
        """Changes with the saved review, whoever saves it."""
        path = self.run / FILE
        content = path.read_bytes() if path.exists() else b""
        return hashlib.blake2b(content, digest_size=8).hexdigest()

    def save(self, value: Any, version: str) -> str:
        """Check and write a review that was made from `version`; the new version."""
        review = Review.from_json(value, self.n_clusters)
        unknown = sorted(review.moved.keys() - self._known)
        if unknown:
            raise ReviewError(
                f"{json.dumps(unknown[0])} is moved, but no sample of the run is called so. "
                "Reload the page."
            )
        with self._saving:
            if version != self.version():
                raise StaleReview(
                    "The review was changed in another tab or program since this page read it. "
                    "Reload the page to go on from there."
                )
            review.write(self.run)
            return self.version()


def _columns(path: Path, n_clusters: int) -> dict[str, Any]:
    """The assignments by column, as the page takes them; `key` says what a name is."""
    rows = _read_table(path)
    try:
        key = "path" if "path" in rows[0] else "row"
        clusters = [int(row["cluster"]) for row in rows]
        if not all(0 <= k < n_clusters for k in clusters):
            raise InputError(f"a cluster is not among 0 to {n_clusters - 1}")
        numbers = ("probability", "second_cluster", "second_probability", "distance")
        return {
            "key": key,
            "name": [row[key] for row in rows],
            "cluster": clusters,
            **{name: [_number(row.get(name)) for row in rows] for name in numbers},
            "flag": [row.get("flag") or "" for row in rows],
        }
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"{path} is no table of assignments ({error!r}). Give the folder of a finished run."
        ) from error


def _read_table(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be read ({error.strerror}). Give the folder of a finished run."
        ) from error


def _number(text: str | None) -> float | None:
    """A number that JSON can hold, short; None where there is none."""
    value = float(text or "nan")
    return float(f"{value:.6g}") if math.isfinite(value) else None
