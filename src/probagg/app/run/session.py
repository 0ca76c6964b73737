"""A run under review: its samples as plain data, its pictures, and the review that is saved."""

import functools
import hashlib
import json
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from typing import Any

from probagg.app.assignments import COLUMNS, Assignments
from probagg.app.report.groups import suggested_names
from probagg.app.report.thumbnails import image_rows, jpeg, read_picture, read_whole
from probagg.app.review import Review, ReviewError
from probagg.app.run.contents import read_contents, read_features, read_review, write_review
from probagg.app.run.methods import FEATURE_DEFAULTS
from probagg.app.run.pages import find_images
from probagg.app.run.selection import most_similar
from probagg.app.run.splitting import split_cluster
from probagg.data.images import converted

# Pixels of the longer side of an enlarged picture.
LARGE = 1600
# Samples that the page shows as similar to one.
SIMILAR = 60
# Pixels of a thumbnail: sharp at the largest size on the page, nearly so on high-density screens.
THUMBNAIL = 192
# Thumbnails in memory, about 30 MB.
_KEPT = 4096


class StaleReview(RuntimeError):
    """The saved review has changed since the page read it."""


class Session:
    """What the review page reads of a run, and the review, which is all it writes.

    A sample is known by its place in the table, counted from 0: no path comes from the browser.
    `rows` returns what similar samples are found by, and the metric, of a run without features.
    """

    def __init__(
        self,
        run: str | PathLike[str],
        rows: Callable[[], tuple[Any, str]] | None = None,
    ) -> None:
        contents = read_contents(run)
        self.samples = contents.assigned
        X = read_features(run, len(self.samples))
        self._contents = replace(contents, features=X)
        if X is not None:
            rows = rows or (lambda: (X, FEATURE_DEFAULTS["metric"]))
        self.run, self._rows_of = contents.run, rows
        self._known = frozenset(self.samples.names)
        self._saving = threading.Lock()
        images, self._reason = find_images(contents, None)
        self._whole, self._rows = images, dict(enumerate(image_rows(images, self.samples)))
        if images is not None and (images.paths is not None or max(images.size) > THUMBNAIL):
            images = converted(images, THUMBNAIL, None)
        self._images = images

    @functools.lru_cache(maxsize=_KEPT)  # noqa: B019  a session lives as long as its server
    def thumbnail(self, sample: int) -> bytes | None:
        """Return the JPEG of a sample as a small square; None where there is no picture of it."""
        return jpeg(read_picture(self._images, self._rows.get(sample)))

    def photo(self, sample: int) -> bytes | None:
        """Return the JPEG of a whole sample, large; None where there is no picture of it."""
        return jpeg(read_whole(self._whole, self._rows.get(sample), LARGE))

    def describe(self) -> dict[str, Any]:
        """Return all that the page shows: the table, overlaps, and the saved review."""
        review = read_review(self.run)
        pairs = {tuple(sorted((p.first, p.second))): p.samples for p in self._contents.overlaps}
        return {
            "run": self.run.resolve().name,
            "n_clusters": self._contents.n_clusters,
            "pictures": self._images is not None,
            "can_split": self._contents.features is not None,
            "can_compare": self._rows_of is not None,
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

            def check() -> None:
                if version != version_of(read_review(self.run)):
                    raise StaleReview(
                        "The review was changed in another tab or program since this page read "
                        "it. Reload the page to continue from there."
                    )

            write_review(self.run, review, check)
        return version_of(review)

    def split(self, value: Any, cluster: Any, n_parts: Any) -> dict[str, Any]:
        """Return how a cluster of a review divides into parts, for JSON; nothing is saved."""
        X, K = self._contents.features, self._contents.n_clusters
        if X is None:
            raise ReviewError(
                "This run has no features to split a cluster by. Move its samples to a new cluster."
            )
        review = self._checked(value)
        return split_cluster(X, self.samples, K, review, cluster, n_parts).to_json()

    def similar(self, sample: Any) -> dict[str, Any]:
        """Return the samples that are most similar to one, nearest first, for JSON."""
        if self._rows_of is None:
            raise ReviewError("This run has no features to compare samples by.")
        if type(sample) is not int or not 0 <= sample < len(self.samples):
            raise ReviewError(f"{sample} is not one of the samples. Reload the page.")
        X, metric = self._rows_of()
        rows, _ = most_similar(X, X[sample : sample + 1], SIMILAR, metric, sample)
        return {"samples": rows.tolist()}

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


def version_of(review: Review) -> str:
    """Return a digest that differs between different reviews."""
    return hashlib.blake2b(review.to_bytes(), digest_size=8).hexdigest()


def columns(table: Assignments) -> dict[str, Any]:
    """Return a table by column for JSON, with null for unknown; `key` says what a name is."""
    cells = {name: [_plain(cell) for cell in getattr(table, name).tolist()] for name in COLUMNS}
    for name in ("second_cluster", "second_probability"):
        known = zip(cells[name], table.second_cluster >= 0, strict=True)
        cells[name] = [cell if is_known else None for cell, is_known in known]
    return {"key": table.heading, "name": table.names, **cells}


def _plain(cell: Any) -> Any:
    """Return a cell that JSON can hold: numbers in 6 digits; None for NaN and infinity."""
    if not isinstance(cell, float):
        return cell
    return float(f"{cell:.6g}") if math.isfinite(cell) else None
