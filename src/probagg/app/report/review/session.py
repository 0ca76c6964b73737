"""A run under review: its samples as plain data, its thumbnails, and the review that is saved."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from probagg.app.assignments import Assignments
from probagg.app.report.contents import Contents
from probagg.app.report.page.groups import suggested_names
from probagg.app.report.page.thumbnails import TINY, image_rows, read_picture, read_whole
from probagg.app.review import Review, ReviewError, Split
from probagg.data.images import ImageSet, converted

if TYPE_CHECKING:
    from PIL.Image import Image

LARGE = 1600  # pixels of the longer side of an enlarged picture
THUMBNAIL = 192  # pixels: sharp at the largest size on the page, nearly so on high-density screens
_KEPT = 4096  # thumbnails in memory, about 30 MB


class StaleReview(RuntimeError):
    """The saved review has changed since the page read it."""


class Session:
    """What the review page reads, and the review, which is all it writes.

    A sample is known by its place in the table, counted from 0: no path comes from the browser.
    `read` returns the saved review. `save` replaces it once the check that it is given has passed,
    with no other process writing meanwhile. `split` divides a cluster of a review into parts, and
    `similar` returns the samples most similar to one; None where a run has no features. `reason`
    says why there are no images.
    """

    def __init__(
        self,
        contents: Contents,
        images: ImageSet | None,
        reason: str,
        read: Callable[[], Review],
        save: Callable[[Review, Callable[[], None]], object],
        split: Callable[[Review, Any, Any], Split] | None = None,
        similar: Callable[[int], list[int]] | None = None,
    ) -> None:
        self.run = contents.run
        self.samples = contents.assigned
        self._contents, self._reason = contents, reason
        self._read, self._save, self._split, self._similar = read, save, split, similar
        self._known = frozenset(self.samples.names)
        self._saving = threading.Lock()
        self._whole, self._rows = images, image_rows(images, self.samples)
        if images is not None and (
            images.paths is not None or max(images.size or (0,)) > THUMBNAIL
        ):
            images = converted(images, THUMBNAIL, None)
        self._images = images

    @functools.lru_cache(maxsize=_KEPT)  # noqa: B019  a session lives as long as its server
    def thumbnail(self, sample: int) -> bytes | None:
        """Return the JPEG of a sample as a small square; None where there is no picture of it."""
        if not 0 <= sample < len(self.samples):
            return None
        return _jpeg(read_picture(self._images, self._rows[sample]))

    def photo(self, sample: int) -> bytes | None:
        """Return the JPEG of a whole sample, large; None where there is no picture of it."""
        if not 0 <= sample < len(self.samples):
            return None
        return _jpeg(read_whole(self._whole, self._rows[sample], LARGE))

    def describe(self) -> dict[str, Any]:
        """Return all that the page shows: the table, overlaps, and the saved review."""
        review = self._read()
        pairs = {tuple(sorted((p.first, p.second))): p.samples for p in self._contents.overlaps}
        return {
            "run": self.run.resolve().name,
            "n_clusters": self._contents.n_clusters,
            "pictures": self._images is not None,
            "can_split": self._split is not None,
            "can_compare": self._similar is not None,
            "trouble": self._reason or None,
            "samples": columns(self.samples),
            "overlaps": [{"pair": pair, "samples": n} for pair, n in pairs.items()],
            "suggestions": {str(k): names for k, names in suggested_names(self._contents).items()},
            "loose": self._contents.loose,
            "review": review.to_json(),
            "version": version_of(review),
        }

    def save(self, value: Any, version: str) -> str:
        """Check and save a review that was made from `version`, and return the new version."""
        review = self._checked(value)
        with self._saving:
            self._save(review, lambda: self._check_version(version))
        return version_of(review)

    def split(self, value: Any, cluster: Any, n_parts: Any) -> dict[str, Any]:
        """Return how a cluster of a review divides into parts, for JSON; nothing is saved."""
        if self._split is None:
            raise ReviewError(
                "This run has no features to split a cluster by. Move its samples to a new cluster."
            )
        return self._split(self._checked(value), cluster, n_parts).to_json()

    def similar(self, sample: Any) -> dict[str, Any]:
        """Return the samples that are most similar to one, nearest first, for JSON."""
        if self._similar is None:
            raise ReviewError("This run has no features to compare samples by.")
        if type(sample) is not int or not 0 <= sample < len(self.samples):
            raise ReviewError(f"{sample} is not one of the samples. Reload the page.")
        return {"samples": self._similar(sample)}

    def _checked(self, value: Any) -> Review:
        """Return the review in parsed JSON; every sample in it must be one of the run's."""
        review = Review.from_json(value, self._contents.n_clusters)
        members = (split.members.keys() for split in review.splits)
        named = review.discarded.union(review.moved, *members)
        if unknown := sorted(named - self._known):
            raise ReviewError(
                f"{json.dumps(unknown[0])} is in the review, but it is not a sample of the run. "
                "Reload the page."
            )
        return review

    def _check_version(self, version: str) -> None:
        if version != version_of(self._read()):
            raise StaleReview(
                "The review was changed in another tab or program since this page read it. "
                "Reload the page to continue from there."
            )


def _jpeg(picture: Image | None) -> bytes | None:
    """Return a Pillow image as JPEG; None for None."""
    if picture is None:
        return None
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=95 if max(picture.size) <= TINY else 85)
    return file.getvalue()


def version_of(review: Review) -> str:
    """Return a digest that differs between different reviews."""
    return hashlib.blake2b(review.to_bytes(), digest_size=8).hexdigest()


def columns(table: Assignments) -> dict[str, Any]:
    """Return a table by column for JSON, with null for unknown; `key` says what a name is."""
    second = [k if k >= 0 else None for k in table.second_cluster.tolist()]
    p_second = [_number(p) for p in table.second_probability.tolist()]
    return {
        "key": table.heading,
        "name": table.names,
        "cluster": table.cluster.tolist(),
        "probability": [_number(p) for p in table.probability.tolist()],
        "second_cluster": second,
        "second_probability": [
            p if k is not None else None for p, k in zip(p_second, second, strict=True)
        ],
        "distance": [_number(d) for d in table.distance.tolist()],
        "flag": table.flag.tolist(),
    }


def _number(value: float) -> float | None:
    """Return a number that JSON can hold, in 6 digits; None for NaN and infinity."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
