"""What a run learns from: a review, as known labels of a new fit, and new samples."""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from probagg.aggregation import LINEAR_METRICS
from probagg.app.assignments import Assignments
from probagg.app.review import Review
from probagg.app.run.by_pac import FITTED
from probagg.app.run.folder import CHANGES, REVIEW, RunFolder, is_finished
from probagg.app.run.monitor import Monitor
from probagg.app.run.pages import write_page
from probagg.app.run.result import Clustering, begin, text_table, write
from probagg.app.run.samples import Samples
from probagg.errors import InputError
from probagg.known import UNKNOWN
from probagg.neighbours.graph import nearest_rows

# The share of a cluster's samples, its most typical ones, that keep their cluster in a new fit: so
# numbers stay, and what is doubtful is decided anew.
ANCHORS = 0.25
# Neighbours of a corrected sample that are counted as following it or not.
FOLLOWERS = 10
# Parameters of the estimator that a new fit takes over.
KEPT = ("m", "metric", "balance", "n_init")


@dataclass(frozen=True)
class Parent:
    """A run from which a new one is made.

    `samples` have features, `assigned` is the table before the review, `representatives` (N,) are
    the rows that count for near-duplicates, where these count once. `files` go to the new run.
    """

    path: Path
    config: dict[str, Any]
    n_clusters: int
    samples: Samples
    assigned: Assignments
    review: Review
    representatives: np.ndarray | None
    files: dict[str, bytes]

    @property
    def metric(self) -> str:
        """The metric of its clusters."""
        return str(self.config.get("pac", {}).get("metric", "sqeuclidean"))

    def check(self, verb: str) -> None:
        """Raise where no new run can be made from this one."""
        if self.config["method"] != "pac" or self.metric not in LINEAR_METRICS:
            raise InputError(
                f"The run in {self.path} was made by {self.config['method'].upper()} with the "
                f"metric {self.metric!r}, but {verb} fits PAC with {' or '.join(LINEAR_METRICS)}. "
                "Cluster again with these."
            )

    def facts(self) -> dict[str, Any]:
        """Return what result.json says of how the clusters were made."""
        facts: dict[str, Any] = {"method": "pac", "parent": str(self.path.resolve())}
        if "embed" in self.config:
            facts["backbone"] = self.config["embed"]["backbone"]
        return facts | {"smooth": bool(self.config.get("smooth"))}


def refine_run(parent: Parent) -> tuple[Clustering, Review, Changes]:
    """Fit the samples of a run again, with what its review holds as known labels."""
    parent.check("refine")
    review, began = parent.review, time.perf_counter()
    if not replace(review, names={}):
        raise InputError(
            f"The review of {parent.path} holds no moves, merges, splits or discarded samples to "
            "learn from. Make some first: probagg report RUN --serve"
        )
    table, left = apart(review, parent.assigned, parent.n_clusters)
    known = known_labels_of(table, review.moved, ANCHORS)
    rows, first = table.cluster >= 0, parent.representatives
    if first is not None:
        decided = np.array([name in review.moved for name in table.names])
        rows &= decided | (first == np.arange(len(first)))
    K, X = review.n_numbers(parent.n_clusters), parent.samples.X
    model, P = _refit(parent, known, K, np.flatnonzero(rows))
    if first is not None:
        P[~rows] = P[first[~rows]]
    after = np.where(table.cluster >= 0, left.groups(K)[P.argmax(1)], UNKNOWN)
    before = review.apply(parent.assigned).cluster
    moved = np.flatnonzero([name in left.moved for name in table.names])
    changes = Changes.of(before, after, moved, X, parent.metric)
    facts = parent.facts() | {"refined": changes.facts()}
    lines = text_table("name before after", changes.table(table.names), table.heading)
    clustering = _clustering(parent, parent.samples, P, model, began, facts, {CHANGES: lines})
    return clustering, left, changes


def _refit(parent: Parent, known: np.ndarray, K: int, rows: np.ndarray) -> tuple[Any, np.ndarray]:
    params = {name: parent.config["pac"][name] for name in KEPT if name in parent.config["pac"]}
    params["random_state"] = parent.config.get("seed", 0)
    smooth = bool(parent.config.get("smooth"))
    return refit(parent.samples.X, known, K, params, smooth, rows)


def _clustering(
    parent: Parent,
    samples: Samples,
    P: np.ndarray,
    model: Any,
    began: float,
    facts: dict[str, Any],
    files: dict[str, str],
) -> Clustering:
    pac = getattr(model, "pac_", model)
    if pac is not model:
        facts = facts | {"clusters": model.reason_}
    return Clustering(
        samples=samples,
        P=P,
        X=samples.X,
        metric=parent.metric,
        model=model,
        seconds=time.perf_counter() - began,
        facts=facts | {name: getattr(pac, f"{name}_") for name in FITTED},
        files={**parent.files, **files},
    )


def write_successor(
    parent: Parent,
    folder: RunFolder,
    clustering: Clustering,
    review: Review,
    monitor: Monitor,
    *,
    report: bool,
) -> None:
    """Write the run that was made from another one, with what is left of the review."""
    K = clustering.P.shape[1]
    config = parent.config | {"n_clusters": K, "parent": str(parent.path.resolve())}
    config |= {"source": clustering.samples.source, "pac": config["pac"] | {"n_clusters": K}}
    with folder:
        begin(folder, config)
        write(folder, clustering)
        folder.write(REVIEW, review.to_bytes())
        folder.write("log.txt", "\n".join(monitor.lines) + "\n")
    monitor.say(f"written to {folder.path}; {parent.path} is as it was")
    if report:
        write_page(folder.path, clustering.X, clustering.samples.images, monitor)


def beside(run: Path, word: str) -> Path:
    """Return where a run made from another goes: RUN-WORD, with a number where that is taken."""
    name = re.sub(r"-(refined|updated)(-\d+)?$", "", run.resolve().name)
    first = run.parent / f"{name}-{word}"
    others = (first.with_name(f"{first.name}-{n}") for n in itertools.count(2))
    return next(out for out in itertools.chain([first], others) if not is_finished(out))


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


def refit(
    X: Any, known: np.ndarray, n_clusters: int, params: dict[str, Any], smooth: bool, rows: Any
) -> tuple[Any, np.ndarray]:
    """Fit PAC, smoothed or not, on some rows of X; return the model and P (N, n_clusters) of all.

    Only numbers with known labels are clusters of the fit: no sample is in the others.
    """
    import probagg  # scikit-learn is slow to import

    numbers = np.unique(known[rows][known[rows] != UNKNOWN])
    compact = np.where(known == UNKNOWN, UNKNOWN, np.searchsorted(numbers, known))
    estimator = probagg.GraphPAC if smooth else probagg.PAC
    model: Any = estimator(len(numbers), **params)
    model.fit(X[rows], known_labels=compact[rows])
    others = np.setdiff1d(np.arange(X.shape[0]), rows)
    P = np.zeros((X.shape[0], n_clusters), np.float64)
    P[np.ix_(rows, numbers)] = model.probabilities_
    if len(others):
        P[np.ix_(others, numbers)] = model.predict_proba(X[others])
    if len(numbers) < n_clusters:
        model._place_clusters(numbers, n_clusters)
    return model, P


@dataclass(frozen=True)
class Changes:
    """The samples that are in another cluster after a new fit, by row, and who followed whom.

    `followed` of `neighbours` are the nearest samples of corrected ones that were in another
    cluster before, and are in theirs now.
    """

    rows: np.ndarray
    before: np.ndarray
    after: np.ndarray
    n_known: int
    neighbours: int
    followed: int

    @classmethod
    def of(
        cls, before: np.ndarray, after: np.ndarray, moved: np.ndarray, X: Any, metric: str
    ) -> Changes:
        """Compare the clusters of samples; `moved` are the rows that a person corrected."""
        rows, pairs = np.flatnonzero(before != after), set[tuple[int, int]]()
        if len(moved):
            near = nearest_rows(X[moved], min(FOLLOWERS + 1, X.shape[0]), metric, among=X)
            for row, some in zip(moved.tolist(), near.tolist(), strict=True):
                pairs |= {(j, row) for j in some if j not in moved and before[j] != after[row]}
        followed = {j for j, row in pairs if after[j] == after[row]}
        neighbours = {j for j, _ in pairs}
        return cls(rows, before[rows], after[rows], len(moved), len(neighbours), len(followed))

    def facts(self) -> dict[str, Any]:
        """Return what result.json says of them."""
        flows = Counter(zip(self.before.tolist(), self.after.tolist(), strict=True))
        return {
            "n_known": self.n_known,
            "n_changed": len(self.rows),
            "n_neighbours": self.neighbours,
            "n_followed": self.followed,
            "flows": [[a, b, n] for (a, b), n in flows.most_common()],
        }

    def lines(self, noun: str) -> list[str]:
        """Return the changes in words."""
        found = [f"{len(self.rows):,} {noun} are in another cluster now"]
        if self.n_known:
            found[0] = f"{self.n_known:,} known, {found[0]}"
        if self.neighbours:
            found.append(f"of {self.neighbours:,} neighbours of those, {self.followed:,} followed")
        return found

    def table(self, names: list[str]) -> list[tuple[str, int, int]]:
        """Return the lines of changes.csv."""
        columns = zip(self.rows, self.before.tolist(), self.after.tolist(), strict=True)
        return [(names[row], before, after) for row, before, after in columns]
