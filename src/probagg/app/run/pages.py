"""The pages of a run: report.html with its map, and the review page, which also splits clusters."""

import functools
import warnings
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from probagg.app.assignments import Assignments, Yardstick
from probagg.app.report.contents import Contents
from probagg.app.report.map import positions
from probagg.app.report.page.rendering import render_page
from probagg.app.report.review.session import Session
from probagg.app.review import MAX_CREATED, MAX_PARTS, Review, ReviewError, Split
from probagg.app.run.contents import read_contents, read_features, read_review, write_review
from probagg.app.run.folder import MAP, add_to_run, verified
from probagg.app.run.methods import FEATURE_DEFAULTS
from probagg.app.run.selection import most_similar
from probagg.arrays import npz_bytes
from probagg.data.images import ImageSet
from probagg.data.opening import open_images
from probagg.errors import first_line, warn_user
from probagg.progress import Monitor

REPORT = "report.html"
# Samples that the review page shows as similar to one.
SIMILAR = 60
MOST_IN_TREE = 100  # clusters


def write_report(run: str | PathLike[str], *, images: ImageSet | None = None) -> Path:
    """Write report.html into a run folder, from the files in it, and return its path.

    Pictures come from `images`, or from the source in config.toml; where that is gone, the page
    says so and shows names.
    """
    contents = read_contents(run)
    if (X := read_features(run, len(contents.assigned))) is not None:
        contents = replace(contents, features=X)
    contents = replace(contents, merges=_merges(run, contents))
    found, reason = find_images(contents, images)
    return add_to_run(run, REPORT, render_page(contents, found, reason))


def _merges(run: str | PathLike[str], contents: Contents) -> list[tuple[int, int]]:
    """Return Ward's tree of the centres, as pairs of clusters; none where there are very many."""
    from probagg.pac.clusters import ward_linkage  # which loads SciPy

    K, path = contents.n_clusters, verified(run, "yardstick.safetensors")
    if K > MOST_IN_TREE or not path.is_file():
        return []
    sizes = np.bincount(contents.assigned.cluster, minlength=K)
    centers = Yardstick.load(path).centers
    if len(centers) != K:
        return []
    return [(int(a), int(b)) for a, b, *_ in ward_linkage(centers, sizes)]


def write_page(out: Path, X: Any, images: ImageSet | None, monitor: Monitor) -> None:
    """Write map and page once a run is sealed: an error here costs only these."""
    try:
        rows, xy = positions(X)
        add_to_run(out, MAP, npz_bytes(rows=rows, xy=xy))
        page = write_report(out, images=images)
    except ImportError as error:
        warn_user(f"There is no report.html. {error}")
    except Exception as error:
        again = f"Try again: probagg report {out}"
        warn_user(f"There is no report.html ({first_line(error)}). {again}")
    else:
        monitor.say(f"look at {page}")


def find_images(contents: Contents, images: ImageSet | None) -> tuple[ImageSet | None, str]:
    """Return the images of a run and "", or None and the reason why they cannot be shown."""
    if not contents.has_images:
        return None, ""
    source, samples = str(contents.config.get("source", "")), contents.assigned
    if images is None and not source:
        return None, "config.toml names no source."
    try:
        images = open_images(source) if images is None else images
    except (OSError, ValueError, ImportError) as error:
        return None, str(error)
    if (images.paths is None) == (samples.heading == "path"):
        return None, f"{source} is no longer what was clustered."
    if images.paths is None and len(images) != len(samples):
        return None, f"{source} now holds {len(images)} images, but {len(samples)} were clustered."
    return images, ""


def review_session(
    run: str | PathLike[str], rows: Callable[[], tuple[Any, str]] | None = None
) -> Session:
    """Return a session in which a person reviews a run; changes are saved in its folder.

    `rows` returns what similar samples are found by, and the metric, in place of features.
    """
    contents = read_contents(run)
    images, reason = find_images(contents, None)
    read, save = functools.partial(read_review, run), functools.partial(write_review, run)
    X, split = read_features(run, len(contents.assigned)), None
    if X is not None:
        contents = replace(contents, features=X)
        split = functools.partial(split_cluster, X, contents.assigned, contents.n_clusters)
        rows = rows or (lambda: (X, FEATURE_DEFAULTS["metric"]))
    similar = None if rows is None else functools.partial(_similar_samples, rows)
    return Session(contents, images, reason, read, save, split, similar)


def _similar_samples(rows: Callable[[], tuple[Any, str]], sample: int) -> list[int]:
    X, metric = rows()
    return most_similar(X, X[sample : sample + 1], SIMILAR, metric, sample)[0].tolist()


def split_cluster(
    X: np.ndarray, assigned: Assignments, n_clusters: int, review: Review, cluster: Any, n: Any
) -> Split:
    """Divide a cluster of a reviewed run into `n` parts; the review itself is not changed.

    X (N, D) are the features of the samples in `assigned`, the table before the review. Discarded
    samples do not count as members.
    """
    if type(n) is not int or not 2 <= n <= MAX_PARTS:
        raise ReviewError(f"A cluster is split into 2 to {MAX_PARTS} parts, not {n}.")
    if type(cluster) is not int or cluster not in review.clusters(n_clusters):
        raise ReviewError(f"Cluster {cluster} is not one of the clusters. Reload the page.")
    first = review.n_numbers(n_clusters)
    if first + n > n_clusters + MAX_CREATED:
        raise ReviewError(f"A review can add {MAX_CREATED:,} clusters. Undo splits or new ones.")
    members = np.flatnonzero(review.apply(assigned).cluster == cluster)
    if len(members) < n:
        raise ReviewError(
            f"{review.name_of(cluster)} has {len(members)} members, too few for {n} parts."
        )
    pac = _fitted(np.asarray(X[members], np.float64), n)
    split = _split_of(pac, cluster, tuple(range(first, first + n)))
    if len(np.unique(split.choose(X[members]))) < n:
        raise ReviewError(
            f"PAC finds fewer than {n} parts in {review.name_of(cluster)}: its members are too "
            "similar. Ask for fewer parts, or move photos by hand."
        )
    rows = np.flatnonzero(_reaching(assigned, review, cluster))
    names = [assigned.names[row] for row in rows]
    return replace(split, members=dict(zip(names, split.choose(X[rows]).tolist(), strict=True)))


def _fitted(X: np.ndarray, n: int) -> Any:
    """Return PAC fitted with the settings of features of a network."""
    from probagg.pac.pac import PAC  # scikit-learn is slow to import

    with warnings.catch_warnings():
        # The page shows the parts, and a part may be empty.
        warnings.simplefilter("ignore")
        return PAC(n, **FEATURE_DEFAULTS, balance=0.0, random_state=0).fit(X)


def _split_of(pac: Any, cluster: int, parts: tuple[int, ...]) -> Split:
    """Return the rule by which a fitted PAC assigns, in unit vectors, without members."""
    # Rows have length sqrt(1/2), by which cosine is a squared distance.
    moments = pac.moments_
    mass = np.maximum(moments.mass, np.finfo(float).tiny)
    means = moments.first / mass[:, None]
    spread = moments.second / mass - (means * means).sum(1)
    weight = mass**pac.balance
    return Split(
        cluster,
        parts,
        members={},
        mean=(np.sqrt(2.0) * means).astype("<f4").tobytes(),
        weight=tuple((weight / weight.sum()).tolist()),
        spread=tuple((2.0 * spread).tolist()),
    )


def _reaching(assigned: Assignments, review: Review, cluster: int) -> np.ndarray:
    """Return which samples have the cluster as their first, second or chosen one, (N,) bool."""
    kept = replace(review, discarded=frozenset())
    moved, unmoved = kept.apply(assigned), replace(kept, moved={}).apply(assigned)
    tables = (moved.cluster, unmoved.cluster, unmoved.second_cluster)
    return np.any([clusters == cluster for clusters in tables], axis=0)
