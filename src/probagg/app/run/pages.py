"""The page of a run, report.html, with its map."""

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from probagg.app.assignments import Yardstick
from probagg.app.report.contents import Contents
from probagg.app.report.map import positions
from probagg.app.report.rendering import render_page
from probagg.app.run.contents import read_contents, read_features
from probagg.app.run.folder import MAP, add_to_run, verified
from probagg.arrays import npz_bytes
from probagg.data.images import ImageSet
from probagg.data.opening import open_images
from probagg.errors import first_line, warn_user
from probagg.progress import Monitor

REPORT = "report.html"
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
