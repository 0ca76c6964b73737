"""The page of a run, report.html, with its map of some samples by t-SNE."""

import warnings
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from probagg.app.assignments import Yardstick
from probagg.app.report.contents import Contents
from probagg.app.report.rendering import render_page
from probagg.app.run.contents import read_contents, read_features
from probagg.app.run.folder import MAP, add_to_run, verified
from probagg.arrays import npz_bytes
from probagg.data.images import ImageSet
from probagg.data.opening import open_images
from probagg.errors import first_line, warn_user
from probagg.progress import Monitor

REPORT = "report.html"
# The most clusters in the tree, and samples on the map: t-SNE of these takes two seconds, and more
# points hide each other.
MOST_IN_TREE, MOST_ON_MAP = 100, 1_500
# Dimensions after PCA, as t-SNE's authors have them; the steps after which the map hardly changes;
# and the least rows of which t-SNE means anything.
DIMENSIONS, STEPS, LEAST = 50, 600, 10


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
    from probagg.pac.clusters import ward_linkage  # SciPy is slow to import

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


def positions(X: Any, *, random_state: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return at most 1,500 random rows of X (n,) and their positions in the unit square (n, 2).

    >>> rows, xy = positions(np.eye(3))
    >>> rows.tolist(), xy.shape
    ([0, 1, 2], (3, 2))
    """
    from sklearn.manifold import TSNE  # scikit-learn is slow to import

    rng = np.random.default_rng(random_state)
    rows = np.sort(rng.choice(X.shape[0], min(X.shape[0], MOST_ON_MAP), replace=False))
    # t-SNE's threads synchronise after every step: beside other work two are slower than one.
    with threadpool_limits(1):
        Z = _principal_axes(X[rows], random_state)
        xy = Z[:, :2]
        # t-SNE cannot do equal rows.
        if len(Z) >= LEAST and float(np.ptp(Z)) > 0.0:
            perplexity = min(30.0, (len(Z) - 1) / 3)
            tsne = TSNE(
                2, perplexity=perplexity, init="pca", max_iter=STEPS, random_state=random_state
            )
            xy = tsne.fit_transform(Z.astype(np.float32))
    low, high = xy.min(axis=0), xy.max(axis=0)
    return rows, ((xy - low) / np.maximum(high - low, 1e-12)).astype(np.float32)


def _principal_axes(rows: Any, seed: int) -> np.ndarray:
    """Return rows on their first principal axes (n, 2 or more columns), the longest of length 1."""
    from sklearn.decomposition import PCA, TruncatedSVD

    kept = min(DIMENSIONS, *rows.shape)
    # So that squares neither overflow nor vanish.
    largest = float(abs(rows).max()) or 1.0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # One row, or equal rows, have no variance.
        warnings.simplefilter("ignore")
        if hasattr(rows, "toarray"):
            Z = TruncatedSVD(kept, random_state=seed).fit_transform(rows / largest)
        else:
            dense = np.asarray(rows, dtype=np.float64) / largest
            Z = PCA(kept, random_state=seed).fit_transform(dense)
    Z = np.pad(Z, ((0, 0), (0, max(0, 2 - kept))))
    return Z / (float(abs(Z).max()) or 1.0)
