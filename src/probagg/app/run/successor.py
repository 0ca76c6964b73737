"""A run made from another: by its review (refine), or of more samples (update).

What a person decided is known labels of a new fit.
"""

import re
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from probagg.aggregation import LINEAR_METRICS, embed
from probagg.app.assignments import Assignments
from probagg.app.review import Review
from probagg.app.run import samples as samples_of
from probagg.app.run.contents import ASSIGNMENTS, read_contents
from probagg.app.run.folder import (
    CHANGES,
    DUPLICATES,
    REVIEW,
    SUGGESTIONS,
    RunFolder,
    unused,
)
from probagg.app.run.methods import facts_of
from probagg.app.run.opened import OpenedRun
from probagg.app.run.pages import find_images, write_page
from probagg.app.run.result import Clustering, begin, write
from probagg.app.run.samples import Samples, classes_of
from probagg.app.run.tables import FILE
from probagg.arrays import UNKNOWN
from probagg.data.cells import text_table
from probagg.data.opening import open_images
from probagg.errors import InputError, NoData
from probagg.neighbours.graph import nearest_rows
from probagg.progress import Monitor
from probagg.storage import read_bytes

# The share of a cluster's samples, its most typical ones, that keep their cluster in a new fit: so
# numbers stay, and what is doubtful is decided anew.
ANCHORS = 0.25
# Neighbours of a corrected sample that are counted as following it or not.
FOLLOWERS = 10
# The least samples of a new cluster, and the most new clusters.
LEAST_NEW, MOST_NEW = 5, 20
# Whether a sample fits is told by the distance to this nearest of so many others, which is beyond
# that of this share of its cluster where it does not.
NEIGHBOUR, COMPARED, FITTING = 5, 10_000, 0.95
# The number of new samples near one, itself included, that are a class of their own.
CROWD = 10
NEW_CLUSTERS = ("review", "auto", "none")
# Parameters of the estimator that a new fit takes over.
KEPT = ("m", "metric", "balance", "n_init")
# Files that a run made from another takes over.
CARRIED = (DUPLICATES, SUGGESTIONS, FILE, "skipped.csv")
AnyRun = TypeVar("AnyRun", bound=OpenedRun)


@dataclass(frozen=True)
class Parent:
    """A run from which a new one is made.

    `samples` have features, `assigned` is the table before the review. `joined` says whether its
    clusters are joined parts (see `neighbours.joining`). `files` go to the new run.
    """

    path: Path
    config: dict[str, Any]
    n_clusters: int
    samples: Samples
    assigned: Assignments
    review: Review
    files: dict[str, bytes]
    metric: str
    joined: bool = False


# The run, the clusters of the new one, what is left of the review, and the changes in words.
Made = tuple[Parent, Clustering, Review, list[str]]


def refined(run: OpenedRun, monitor: Monitor) -> Made:
    """Return a run fitted again, with what its review holds as known labels (see `Run.refine`)."""
    parent = _parent(run, monitor, "refine")
    review, began = parent.review, time.perf_counter()
    if not replace(review, names={}):
        raise InputError(
            f"The review of {parent.path} holds no moves, merges, splits or discarded samples to "
            "learn from. Make some first: probagg report RUN --serve"
        )
    table, left = apart(review, parent.assigned, parent.n_clusters)
    known = known_labels_of(table, review.moved, ANCHORS)
    rows = table.cluster >= 0
    K, X = review.n_numbers(parent.n_clusters), parent.samples.X
    model, P = _refit(parent, known, K, np.flatnonzero(rows))
    after = np.where(table.cluster >= 0, left.groups(K)[P.argmax(1)], UNKNOWN)
    before = review.apply(parent.assigned).cluster
    moved = np.flatnonzero([name in left.moved for name in table.names])
    found = compare_clusters(before, after, moved, X, parent.metric)
    triples = zip(table.names, before.tolist(), after.tolist(), strict=True)
    changes = [(name, old, new) for name, old, new in triples if old != new]
    clustering = _clustering(parent, parent.samples, P, model, began, refined=found)
    files = {CHANGES: text_table("name before after", changes, table.heading)}
    known_before = f"{found['n_known']:,} known, " if found["n_known"] else ""
    lines = [
        f"{known_before}{found['n_changed']:,} {parent.samples.noun} are in another cluster now"
    ]
    if n := found["n_neighbours"]:
        lines.append(f"of {n:,} neighbours of those, {found['n_followed']:,} followed")
    return parent, replace(clustering, files=files), left, lines


def updated(run: OpenedRun, source: Any, monitor: Monitor, new_clusters: str, device: str) -> Made:
    """Return a run with new samples (see `Run.update`).

    What was in the run keeps its cluster. What fits nowhere is clustered among itself: new clusters
    are in the review for a person to confirm, or, if `new_clusters` is "auto", in the model.
    """
    is_images = run.config["kind"] == "images"
    parent = _parent(run, monitor, "update", None if is_images else source)
    joined = parent.samples
    if is_images:
        parent, joined = _with_photos(run, parent, source, device, monitor)
    n, K, X, names = len(parent.assigned), parent.n_clusters, joined.X, joined.names
    if len(joined) == n:
        raise NoData(
            f"{joined.source or 'The source'} has no samples that are not in the run in "
            f"{run.path}. Give new ones."
        )
    model = run.model(device)
    # (N, K), of the samples of the run and then of the new ones.
    P = np.array(model.predict_proba(X), np.float64)
    began, old = time.perf_counter(), parent.assigned.cluster
    differ = np.flatnonzero(P[:n].argmax(1) != old)
    P[differ] = np.eye(K)[old[differ]]
    table = Assignments.of(P, X, run.yardstick, names, heading=joined.heading)
    review = parent.review.with_samples(names[n:], X[n:])
    far = new_samples(X, n, table.cluster, parent.metric)
    groups = []
    if new_clusters != "none":
        groups = new_groups(X, far, n, table.cluster, parent.metric)
    proposal = review.with_clusters([[names[row] for row in group] for group in groups], K)
    numbers = [proposal.moved[names[group[0]]] for group in groups]
    found = {
        "n_new": len(joined) - n,
        "n_far": len(far),
        "new_clusters": {str(k): len(g) for k, g in zip(numbers, groups, strict=True)},
        "drift": (changes := drift(review.apply(table), n)),
    }
    if new_clusters == "auto" and groups:
        apart_table, left = apart(proposal, table, K)
        known = np.full(len(joined), UNKNOWN)
        fixed = np.concatenate([np.arange(n), *groups])
        known[fixed] = apart_table.cluster[fixed]
        rows = np.flatnonzero(apart_table.cluster >= 0)
        K_new, settings = proposal.n_numbers(K), replace(parent, samples=joined)
        model, fitted = _refit(settings, known, K_new, rows)
        # What was in the run has its largest probability in its cluster.
        before = np.pad(P[:n], ((0, 0), (0, K_new - K)))
        rows = np.flatnonzero((known[:n] >= 0) & (before.argmax(1) != known[:n]))
        first, place = known[rows], before[rows].argmax(1)
        before[rows, first], before[rows, place] = before[rows, place], before[rows, first]
        fitted[:n] = before
        confirmed = {names[row] for group in groups for row in group}
        moved = {name: k for name, k in left.moved.items() if name not in confirmed}
        P, proposal = fitted, replace(left, moved=moved)
    clustering = _clustering(parent, joined, P, model, began, updated=found)
    lines = [f"{found['n_new']:,} new {joined.noun}, {found['n_far']:,} of which fit no cluster"]
    if groups:
        sizes = ", ".join(f"{k} of {len(g):,}" for k, g in zip(numbers, groups, strict=True))
        lines.append(f"new clusters: {sizes}")
    for each in changes:
        before, new = each["distance_before"], each["distance_new"]
        if before is not None and new is not None:
            grown = f"{each['size_before']:,} to {each['size']:,}"
            distance = f"mean distance {before:.3g}, of new ones {new:.3g}"
            lines.append(f"  cluster {each['cluster']}: {grown}, {distance}")
    return parent, clustering, proposal, lines


def write_successor(
    run: AnyRun,
    word: str,
    make: Callable[[Monitor], Made],
    out: str | PathLike[str] | None,
    report: bool,
    overwrite: bool,
    verbose: int,
) -> AnyRun:
    """Write the run that `make` makes from this one, which stays; return it opened.

    It goes to RUN-WORD where `out` names no other folder, which is locked meanwhile. If this is
    interrupted, nothing is left, or what the next attempt replaces.
    """
    monitor = run.monitor or Monitor(verbose > 0)
    stem = re.sub(r"-(refined|updated)(-\d+)?$", "", run.path.resolve().name)
    out = unused(run.path.parent / f"{stem}-{word}") if out is None else Path(out)
    if out.resolve() == run.path.resolve():
        raise InputError(f"--out {out} is the run itself. Name another folder, or none.")
    with RunFolder(out, overwrite=overwrite) as folder:
        parent, clustering, review, lines = make(monitor)
        for line in lines:
            monitor.say(line)
        K = clustering.P.shape[1]
        config = parent.config | {"n_clusters": K, "parent": str(parent.path.resolve())}
        config |= {"source": clustering.samples.source, "pac": config["pac"] | {"n_clusters": K}}
        begin(folder, config)
        files = {**parent.files, **clustering.files}
        write(folder, replace(clustering, files=files), review.discarded)
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
    new_blank = [found[row] for row in fresh if new.names[row] in new.blank]
    classes: dict[str, str | None] = {}
    for some, called in ((parent.samples, names), (new, found)):
        if some.classes is not None:
            classes |= dict(zip(called, some.classes.texts(), strict=True))
    joined = Samples(
        source=str(home),
        names=names + [found[row] for row in fresh],
        heading="path",
        X=np.concatenate([parent.samples.X, new.X[fresh]]),
        images=open_images(home),
        blank=(*(prefix + name for name in parent.samples.blank), *new_blank),
    ).label(classes or None)
    parent = replace(
        parent, config=config, assigned=replace(table, names=names), review=review, files=files
    )
    return parent, joined


def _parent(run: OpenedRun, monitor: Monitor, verb: str, grown: Any = None) -> Parent:
    """Return this run as a new one is made from it; its samples must still be there.

    Of a table, they may be the first of a `grown` one. `verb` says in errors what is done.
    """
    from probagg.neighbours.joining import PARTS  # SciPy is slow to import

    if run.config["method"] != "pac":
        raise InputError(
            f"The run in {run.path} was made by {run.config['method'].upper()}, but {verb} fits "
            "PAC. Cluster again with --method pac."
        )
    if (
        metric := str(run.config.get("pac", {}).get("metric", "sqeuclidean"))
    ) not in LINEAR_METRICS:
        raise InputError(
            f"The run in {run.path} has the metric {metric!r}, but {verb} needs "
            f"{' or '.join(LINEAR_METRICS)}. Cluster again with one of these."
        )
    contents = read_contents(run.file(ASSIGNMENTS).parent)
    table, source = contents.assigned, run.config.get("source")
    if run.config["kind"] == "images":
        X, _ = run.compared_rows()
        images, why = find_images(contents, run.images)
        if images is None:
            raise NoData(
                f"The images of the run in {run.path} cannot be read: {why} Put them back, or "
                "cluster them again."
            )
        blank = tuple(run.result.get("blank", ()))
        samples = Samples(source, table.names, table.heading, X, images, blank=blank)
    elif grown is not None or source is not None:
        samples = run.open_new(source if grown is None else grown, monitor)
        places = {name: row for row, name in enumerate(samples.names)}
        if missing := [name for name in table.names if name not in places]:
            raise NoData(
                f"{samples.source or 'The source'} has {len(samples):,} rows, without "
                f"{len(missing):,} of those that were clustered, such as {missing[0]}. Give a "
                "table with all of them."
            )
        # What was clustered comes first.
        order = dict.fromkeys([*(places[name] for name in table.names), *places.values()])
        samples = samples if [*order] == [*range(len(samples))] else samples.only([*order])
        if grown is None and len(samples) > len(table):
            raise NoData(
                f"{source} has {len(samples):,} rows, but {len(table):,} were clustered. Add the "
                "new ones with update."
            )
    else:
        X, _ = run.compared_rows()
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
        metric=metric,
        joined=str(run.result.get("clusters", "")).startswith(PARTS),
        files={name: read_bytes(file) for name, file in files.items() if file.is_file()},
    )


def new_samples(X: Any, n: int, clusters: np.ndarray, metric: str) -> np.ndarray:
    """Return which rows from n on fit nowhere: those near them are new too.

    Of the nearest ten, itself included, six must be new where a row is far from rows below n: its
    fifth nearest is farther than that of 95 % of the rows in its cluster. Not the distance to the
    centre decides: clusters need not be compact. In a loose cluster few rows are that far, so
    elsewhere ten of the eleven nearest rows of the same cluster must be new. There, no more new
    rows are compared with than the cluster has old ones, so that of a class that grows at most half
    of the nearest are new. At most 10,000 rows below n are compared with.
    """
    drawn = np.sort(np.random.default_rng(0).choice(n, min(n, COMPARED), replace=False))
    old, new = _points(X[drawn], metric), _points(X[n:], metric)
    labels, own = clusters[drawn], clusters[n:]
    distances, limits = _distances(old), np.zeros(clusters.max() + 1)
    for k in np.unique(labels):
        limits[k] = np.quantile(distances[labels == k], FITTING)
    found = np.zeros(len(new), bool)
    for k in np.unique(own):
        mine, before = np.flatnonzero(own == k), old[labels == k]
        some = np.random.default_rng(0).permutation(mine)[: len(before)]
        found[mine] = _near_new(new[mine], before, new[some], CROWD + 1, CROWD)
    far = np.flatnonzero(_distances(new, old) > limits[own])
    found[far] |= _near_new(new[far], old, new[far], 2 * NEIGHBOUR, NEIGHBOUR + 1)
    return n + np.flatnonzero(found)


def _near_new(
    points: np.ndarray, old: np.ndarray, new: np.ndarray, n_near: int, least: int
) -> np.ndarray:
    """Return of each point whether `least` of its nearest, of old and new ones, are new."""
    if not len(points) or len(old) + len(new) < n_near:
        return np.zeros(len(points), bool)
    near = nearest_rows(points, n_near, among=np.concatenate([old, new]))
    return (near >= len(old)).sum(1) >= least


def _distances(points: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
    """Return the distance of each point to its fifth nearest, of others or of the same points."""
    near = nearest_rows(points, NEIGHBOUR, among=among)[:, -1]
    return np.linalg.norm(points - (points if among is None else among)[near], axis=1)


def _points(X: Any, metric: str) -> np.ndarray:
    """Return rows in which distances are Euclidean."""
    return embed(np.asarray(X.toarray() if hasattr(X, "toarray") else X, np.float64), metric)


def new_groups(
    X: Any, rows: np.ndarray, n: int, clusters: np.ndarray, metric: str
) -> list[np.ndarray]:
    """Return new samples in the fewest groups that are as compact as the clusters of rows below n.

    PAC finds the groups; small ones are left out.
    """
    from probagg import PAC  # scikit-learn is slow to import

    if len(rows) < LEAST_NEW:
        return []
    old = np.sort(np.random.default_rng(0).choice(n, min(n, COMPARED), replace=False))
    points, labels = _points(X[rows], metric), np.zeros(len(rows), np.int64)
    width = _variance(_points(X[old], metric), clusters[old])
    for K in range(2, len(rows) // LEAST_NEW + 1):
        if _variance(points, labels) <= width or K > MOST_NEW:
            break
        with warnings.catch_warnings():
            # They may be of any size.
            warnings.simplefilter("ignore")
            pac = PAC(K, metric=metric, m="auto", n_init=3, random_state=0)
            labels = pac.fit(X[rows]).labels_
    groups = (rows[labels == k] for k in np.unique(labels))
    return [group for group in groups if len(group) >= LEAST_NEW]


def _variance(points: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean squared distance to the mean of the cluster."""
    from probagg.neighbours.joining import spread  # SciPy is slow to import

    return spread(points, labels) / max(len(points) - len(np.unique(labels)), 1)


def drift(table: Assignments, n_old: int) -> list[dict[str, Any]]:
    """Return how each cluster changed: its sizes, and mean distances of old and new samples."""
    found = []
    for k in np.unique(table.cluster[table.cluster >= 0]).tolist():
        members = np.flatnonzero(table.cluster == k)
        old, new = (table.distance[members[part]] for part in (members < n_old, members >= n_old))
        means = [float(np.nanmean(d)) if np.isfinite(d).any() else None for d in (old, new)]
        found.append(
            {
                "cluster": k,
                "size_before": len(old),
                "size": len(old) + len(new),
                "distance_before": means[0],
                "distance_new": means[1],
            }
        )
    return found


def _refit(parent: Parent, known: np.ndarray, K: int, rows: np.ndarray) -> tuple[Any, np.ndarray]:
    """Fit PAC again on some rows, with its old settings; return the model and P (N, K) of all.

    Only numbers with known labels are clusters of the fit: no sample is in the others.
    """
    from probagg import PAC, GraphPAC  # scikit-learn is slow to import
    from probagg.pac.graph_pac import refit

    params = {name: parent.config["pac"][name] for name in KEPT if name in parent.config["pac"]}
    params["random_state"] = parent.config.get("seed", 0)
    model = (GraphPAC if parent.config.get("smooth") else PAC)(K, **params)
    return model, refit(model, parent.samples.X, known, rows, joined=parent.joined)


def _clustering(
    parent: Parent, samples: Samples, P: np.ndarray, model: Any, began: float, **more: Any
) -> Clustering:
    pac = getattr(model, "pac_", model)
    facts: dict[str, Any] = {"method": "pac", "parent": str(parent.path.resolve())}
    if "embed" in parent.config:
        facts["backbone"] = parent.config["embed"]["backbone"]
    facts["smooth"] = bool(parent.config.get("smooth"))
    if pac is not model:
        facts["clusters"] = model.reason_
    facts |= facts_of(pac) | more
    seconds = time.perf_counter() - began
    return Clustering(samples, P, samples.X, parent.metric, model, seconds, facts)


def apart(review: Review, assigned: Assignments, n_clusters: int) -> tuple[Assignments, Review]:
    """Return a reviewed table in which merged clusters are apart, and the review that is left.

    A merged cluster need not be compact, so that a new fit keeps its parts, and the review merges
    them. Splits become clusters of their own. Numbers that no sample has any more are merged too.
    """
    groups, parts = review.groups(n_clusters), {s.cluster: s.parts for s in review.splits}

    def heir(k: int) -> int:
        found = int(groups[k])
        while found in parts:
            found = int(groups[parts[found][0]])
        return found

    folded = {k: into for k, into in review.merged.items() if int(groups[k]) in parts}
    table = replace(review, merged=folded).apply(assigned)
    clusters = dict(zip(table.names, table.cluster.tolist(), strict=True))
    return table, Review(
        names=review.names,
        merged={k: heir(k) for k in (*review.merged, *parts)},
        moved={name: clusters[name] for name in review.moved if clusters.get(name, -1) >= 0},
        discarded=review.discarded,
    )


def known_labels_of(table: Assignments, moved: dict[str, int], share: float) -> np.ndarray:
    """Return the clusters that samples keep in a new fit, -1 for the others.

    Those that a person moved keep theirs, and of each cluster the most typical ones.
    """
    known = np.full(len(table), UNKNOWN)
    decided = np.array([name in moved for name in table.names])
    distance = np.nan_to_num(table.distance, nan=np.inf)
    order = np.lexsort((distance, -table.probability, table.flag != "", decided))
    for k in np.unique(table.cluster[table.cluster >= 0]):
        mine = order[table.cluster[order] == k]
        known[mine[: max(1, int(share * len(mine)))]] = k
    known[decided] = table.cluster[decided]
    return known


def compare_clusters(
    before: np.ndarray, after: np.ndarray, moved: np.ndarray, X: Any, metric: str
) -> dict[str, Any]:
    """Return how many samples are in another cluster, from which to which, and who followed whom.

    `moved` are the rows that a person corrected. Neighbours are the nearest samples of those that
    were in another cluster before; who followed is in theirs now.
    """
    pairs = set[tuple[int, int]]()
    if len(moved):
        near = nearest_rows(X[moved], min(FOLLOWERS + 1, X.shape[0]), metric, among=X)
        for row, some in zip(moved.tolist(), near.tolist(), strict=True):
            pairs |= {(j, row) for j in some if j not in moved and before[j] != after[row]}
    changed = before != after
    flows = Counter(zip(before[changed].tolist(), after[changed].tolist(), strict=True))
    return {
        "n_known": len(moved),
        "n_changed": int(changed.sum()),
        "n_neighbours": len({j for j, _ in pairs}),
        "n_followed": len({j for j, row in pairs if after[j] == after[row]}),
        "flows": [[a, b, n] for (a, b), n in flows.most_common()],
    }
