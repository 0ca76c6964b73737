"""A run made from another: by its review (refine), or of more samples (update)."""

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from probagg.app.review import Review
from probagg.app.run import samples as samples_of
from probagg.app.run.contents import ASSIGNMENTS, read_contents
from probagg.app.run.folder import DUPLICATES, REVIEW, SUGGESTIONS, RunFolder, is_finished
from probagg.app.run.learning import Parent, refine_run, update_run
from probagg.app.run.opened import OpenedRun
from probagg.app.run.pages import find_images, write_page
from probagg.app.run.result import Clustering, begin, write
from probagg.app.run.samples import Samples, classes_of
from probagg.app.run.tables import FILE
from probagg.data.opening import open_images
from probagg.errors import InputError, NoData
from probagg.progress import Monitor
from probagg.storage import read_bytes

# Files that a run made from another takes over.
CARRIED = (DUPLICATES, SUGGESTIONS, FILE, "skipped.csv")
AnyRun = TypeVar("AnyRun", bound=OpenedRun)
Made = tuple[Parent, Clustering, Review, list[str]]


def refined(run: OpenedRun, monitor: Monitor) -> Made:
    """Return a run clustered again with what its review holds (see `Run.refine`)."""
    parent = _parent(run, monitor)
    return parent, *refine_run(parent)


def updated(run: OpenedRun, source: Any, monitor: Monitor, new_clusters: str, device: str) -> Made:
    """Return a run with new samples (see `Run.update`)."""
    is_images = run.config["kind"] == "images"
    parent = _parent(run, monitor, None if is_images else source)
    parent.check("update")
    joined = parent.samples
    if is_images:
        parent, joined = _with_photos(run, parent, source, device, monitor)
    if len(joined) == len(parent.assigned):
        raise NoData(
            f"{joined.source or 'The source'} has no samples that are not in the run in "
            f"{run.path}. Give new ones."
        )
    model = run.model(device)
    P = np.array(model.predict_proba(joined.X), np.float64)
    return parent, *update_run(parent, joined, P, model, run.yardstick, new_clusters)


def write_successor(
    run: AnyRun,
    make: Callable[[], Made],
    monitor: Monitor,
    out: Path,
    report: bool,
    overwrite: bool,
) -> AnyRun:
    """Write the run that `make` makes from this one, which stays; return it opened.

    Its folder is locked meanwhile. If this is interrupted, nothing is left, or what the next
    attempt replaces.
    """
    if out.resolve() == run.path.resolve():
        raise InputError(f"--out {out} is the run itself. Name another folder, or none.")
    with RunFolder(out, overwrite=overwrite) as folder:
        parent, clustering, review, lines = make()
        for line in lines:
            monitor.say(line)
        K = clustering.P.shape[1]
        config = parent.config | {"n_clusters": K, "parent": str(parent.path.resolve())}
        config |= {"source": clustering.samples.source, "pac": config["pac"] | {"n_clusters": K}}
        begin(folder, config)
        write(folder, replace(clustering, files={**parent.files, **clustering.files}))
        folder.write(REVIEW, review.to_bytes())
        folder.write("log.txt", "\n".join(monitor.lines) + "\n")
    monitor.say(f"written to {out}; {run.path} is as it was")
    images = clustering.samples.images
    if report:
        write_page(out, clustering.X, images, monitor)
    rows = clustering.X if images is None else None
    return type(run)(out, images=images, rows=rows, trust_code=run.trust_code)


def _with_photos(
    run: OpenedRun, parent: Parent, source: Any, device: str, monitor: Monitor
) -> tuple[Parent, Samples]:
    """Return this run and its photos with new ones, by names in one folder."""
    place, old = samples_of.place_of(source), run.config.get("source")
    if place is None or old is None or not Path(place).is_dir() or not Path(old).is_dir():
        raise InputError(
            f"update takes a folder of photos for a run of a folder, but was given {source} "
            f"for one of {old or 'images in memory'}. Put the photos into a folder."
        )
    home, prefix, folders = Path(old), "", run.config.get("folders", [])
    if not Path(place).is_relative_to(home):
        home, prefix, folders = home.parent, f"{home.name}/", [home.name]
        if Path(place).parent != home:
            raise InputError(
                f"{place} lies neither in {old}, which was clustered, nor beside it in {home}. "
                "Move the new photos there."
            )
    table, files, config = parent.assigned, dict(parent.files), parent.config
    if folders:
        # Where photos of several folders go by the folder above.
        config = config | {"folders": [*folders, Path(place).relative_to(home).parts[0]]}
    if prefix:
        # Its names of photos are no longer right.
        files.pop(DUPLICATES, None)
    names = [prefix + name for name in table.names]
    review = parent.review.renamed_samples(prefix)
    new = samples_of.embed_images(run.open_new(source, monitor), run.backbone(device), monitor)
    for line in new.left_out():
        monitor.say(line)
    found, known = new.names_in(str(home)) or [], set(names)
    fresh = [row for row, name in enumerate(found) if name not in known]
    classes: dict[str, str] = {}
    for some, called in ((parent.samples, names), (new, found)):
        if some.classes is not None:
            pairs = zip(called, some.classes.y.tolist(), strict=True)
            classes |= {name: some.classes.names[k] for name, k in pairs if k >= 0}
    joined = Samples(
        source=str(home),
        names=names + [found[row] for row in fresh],
        heading="path",
        X=np.concatenate([parent.samples.X, new.X[fresh]]),
        images=open_images(home),
    ).label(classes or None)
    parent = replace(
        parent, config=config, assigned=replace(table, names=names), review=review, files=files
    )
    return parent, joined


def _in_order(samples: Samples, names: list[str]) -> Samples:
    """Return samples of a table with those that were clustered first, which must all be there."""
    places = {name: row for row, name in enumerate(samples.names)}
    if missing := [name for name in names if name not in places]:
        raise NoData(
            f"{samples.source or 'The source'} has {len(samples):,} rows, without "
            f"{len(missing):,} of those that were clustered, such as {missing[0]}. Give a table "
            "with all of them."
        )
    known = set(names)
    order = [places[name] for name in names]
    order += [row for name, row in places.items() if name not in known]
    return samples if order == list(range(len(samples))) else samples.only(order)


def _parent(run: OpenedRun, monitor: Monitor, grown: Any = None) -> Parent:
    """Return this run as a new one is made from it; its samples must still be there.

    Of a table, they may be the first of a `grown` one.
    """
    from probagg.neighbours.joining import PARTS  # which loads SciPy

    contents = read_contents(run.file(ASSIGNMENTS).parent)
    table, source = contents.assigned, run.config.get("source")
    if run.config["kind"] == "images":
        X, _ = run.compared_rows(len(table))
        images, why = find_images(contents, run.images)
        if images is None:
            raise NoData(
                f"The images of the run in {run.path} cannot be read: {why} Put them back, or "
                "cluster them again."
            )
        samples = Samples(source, table.names, table.heading, X, images)
    elif grown is not None or source is not None:
        opened = run.open_new(source if grown is None else grown, monitor)
        samples = _in_order(opened, table.names)
        if grown is None and len(samples) > len(table):
            raise NoData(
                f"{source} has {len(samples):,} rows, but {len(table):,} were clustered. Add the "
                "new ones with update."
            )
    else:
        X, _ = run.compared_rows(len(table))
        columns = run.config.get("columns")
        samples = Samples(None, table.names, table.heading, X, columns=columns)
    if (classes := run.file("classes.csv")).is_file():
        samples = replace(samples, classes=classes_of(classes, samples.names))
    files = {name: run.file(name) for name in CARRIED}
    return Parent(
        path=run.path,
        config=run.config,
        n_clusters=contents.n_clusters,
        samples=samples,
        assigned=table,
        review=contents.review,
        joined=str(run.result.get("clusters", "")).startswith(PARTS),
        files={name: read_bytes(file) for name, file in files.items() if file.is_file()},
    )


def beside(run: Path, word: str) -> Path:
    """Return where a run made from another goes: RUN-WORD, with a number where that is taken."""
    name = re.sub(r"-(refined|updated)(-\d+)?$", "", run.resolve().name)
    first = run.parent / f"{name}-{word}"
    others = (first.with_name(f"{first.name}-{n}") for n in itertools.count(2))
    return next(out for out in itertools.chain([first], others) if not is_finished(out))
