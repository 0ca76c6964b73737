"""The table of a run: the cluster of each sample, the second one, its distance and a flag.

`Assignments` is the table, with the text of assignments.csv (`run.result` writes the file) and its
one reader. `Yardstick` measures distances of samples to their clusters and says which are outliers.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from probagg.arrays import chunks, unit_rows
from probagg.data.cells import PATH, QUOTE, marked, unmarked
from probagg.errors import import_optional, reading
from probagg.storage import RESTORE, open_regular, read_safetensors, write_safetensors

if TYPE_CHECKING:
    import pandas

COLUMNS = ("cluster", "probability", "second_cluster", "second_probability", "distance", "flag")
BORDERLINE, OUTLIER, DISCARDED = "borderline", "outlier", "discarded"
# A sample is borderline if its second probability is at least this share of the first.
BORDERLINE_RATIO = 0.5
# Outliers lie this many interquartile ranges above the upper quartile (Tukey's rule), but are at
# most this share of a cluster: trained features have long tails. Where the share is not more than
# one sample, the largest distance has a part in it, so that one foreign sample hides others.
FENCE, MAX_OUTLIERS = 1.5, 0.025
MANY_OUTLIERS = 0.2  # the share of new samples from which a warning says so
# Entries of P that `Further` keeps, and how many of them at most.
LEAST_FURTHER, MOST_FURTHER = 1e-5, 10_000_000
YARDSTICK_FORMAT = "probagg.yardstick/1"
PART_NUMBERS = 2**22  # probabilities in memory at once
PART_ROWS = 2**16  # lines of text in memory at once
_CHUNK = 1 << 16  # rows compared with the centres at once
_CHUNK_NUMBERS = 1 << 24  # the same for sparse rows, which become dense


@dataclass(frozen=True, eq=False)
class Further:
    """Probabilities of third and further clusters, one entry each: what merges may add up."""

    row: np.ndarray  # of the table, sorted
    cluster: np.ndarray
    probability: np.ndarray

    @classmethod
    def of(cls, P: Any, assigned: Assignments) -> Self | None:
        """Return those of P (n, K) from 0.00001 on; None where there are none, or too many."""
        found, n_entries = [], 0
        for rows in parts_of(P):
            part = P[rows]
            is_further = part >= LEAST_FURTHER
            for known in (assigned.cluster, assigned.second_cluster):
                is_further[np.arange(len(part)), known[rows]] = False
            row, cluster = np.nonzero(is_further)
            p = part[row, cluster].astype(np.float32)
            found.append(((row + rows.start).astype(np.int32), cluster.astype(np.int32), p))
            n_entries += len(row)
            if n_entries > MOST_FURTHER:
                return None
        return cls(*map(np.concatenate, zip(*found, strict=True))) if n_entries else None


@dataclass(frozen=True, eq=False)
class Assignments:
    """The table of a run, which also behaves as a read-only mapping of NumPy columns.

    Column names are those of assignments.csv; the first is `heading`: path, row, or the name of a
    table's id, with `names` as its cells. As with a DataFrame, `len` is the number of samples and
    iteration goes over the column names. `cluster` is -1 where a person discarded the sample,
    `second_cluster` where there is only one cluster, and `distance` NaN where it is unknown. `flag`
    is "" or one of BORDERLINE, OUTLIER and DISCARDED; an outlier is not borderline.
    `cluster_names`, if there are any, are a last column. `further` is no column: merges need it.

    >>> P = np.array([[0.9, 0.1], [0.4, 0.6]])
    >>> table = Assignments.of(P, P, None, ["a.jpg", "b.jpg"], heading="path")
    >>> table
    Assignments: 2 samples, 2 clusters, 1 borderline, 0 outliers
    >>> table["cluster"], table["path"]
    (array([0, 1]), array(['a.jpg', 'b.jpg'], dtype=object))
    >>> list(table)[:3]
    ['path', 'cluster', 'probability']
    """

    names: list[str]
    cluster: np.ndarray
    probability: np.ndarray
    second_cluster: np.ndarray
    second_probability: np.ndarray
    distance: np.ndarray
    flag: np.ndarray
    heading: str = "row"
    cluster_names: dict[int, str] = field(default_factory=dict)
    further: Further | None = None

    def __len__(self) -> int:
        return len(self.cluster)

    def __iter__(self) -> Iterator[str]:
        return iter((self.heading, *COLUMNS, *(["name"] if self.cluster_names else [])))

    def keys(self) -> list[str]:
        """Return the column names."""
        return list(self)

    def __getitem__(self, column: str) -> np.ndarray:
        if column not in self.keys():
            raise KeyError(f"{column!r} is not a column. There are {', '.join(self)}.")
        if column == self.heading:
            return np.array(self.names, np.int64 if column == "row" else object)
        if column == "name":
            return np.array([self.cluster_names.get(k, "") for k in self.cluster.tolist()], object)
        return getattr(self, column)

    def __repr__(self) -> str:
        flags = f"{(self.flag == BORDERLINE).sum()} borderline, {(self.flag == OUTLIER).sum()}"
        n_clusters = len(np.unique(self.cluster[self.cluster >= 0]))
        found = f"Assignments: {len(self)} samples, {n_clusters} clusters, {flags} outliers"
        n_discarded = int((self.flag == DISCARDED).sum())
        return f"{found}, {n_discarded} discarded" if n_discarded else found

    @classmethod
    def of(
        cls,
        P: Any,
        X: Any,
        yardstick: Yardstick | None,
        names: Sequence[object],
        *,
        heading: str = "row",
    ) -> Self:
        """Assign samples by probabilities P (n, K), with X (n, D) the features behind them.

        Both are read in slices of rows, so they need not be in memory.
        """
        parts = [cls._columns(P[rows], X[rows], yardstick) for rows in parts_of(P)]
        return cls([str(name) for name in names], **_join_columns(parts), heading=heading)

    @classmethod
    def given(cls, names: Sequence[str], cluster: np.ndarray, called: Sequence[str]) -> Self:
        """Return the table of clusters that another program found, with their names."""
        n = len(names)
        return cls(
            list(names),
            cluster,
            np.ones(n),
            np.full(n, -1),
            np.zeros(n),
            np.full(n, np.nan),
            np.full(n, ""),
            heading="row" if all(name.isdecimal() for name in names) else "path",
            cluster_names=dict(enumerate(called)),
        )

    @staticmethod
    def _columns(P: np.ndarray, X: Any, yardstick: Yardstick | None) -> tuple[np.ndarray, ...]:
        """Return all columns but the names, of some samples (see `of`)."""
        every, is_single = np.arange(len(P)), P.shape[1] == 1
        ranked = np.argsort(-P, axis=1, kind="stable")[:, :2]
        first, p_first = ranked[:, 0], P[every, ranked[:, 0]]
        second = np.full(len(P), -1) if is_single else ranked[:, 1]
        p_second = np.zeros(len(P), P.dtype) if is_single else P[every, second]
        distance, far = np.full(len(P), np.nan), np.zeros(len(P), bool)
        if yardstick is not None:
            distance = yardstick.distances(X, first)
            far = distance > yardstick.limits[first]
        flag = np.where(p_second >= BORDERLINE_RATIO * p_first, BORDERLINE, "")
        flag = np.where(far, OUTLIER, flag)
        return first, p_first, second, p_second, distance, flag

    def is_foreign(self) -> bool:
        """Return whether so many samples are outliers that others than the run's are among them."""
        return float((self.flag == OUTLIER).mean()) >= MANY_OUTLIERS

    def fit_line(self) -> str:
        """Return in words how many samples are outliers."""
        return f"{(self.flag == OUTLIER).sum():,} of {len(self):,} fit no cluster (outliers)"

    def relabel(
        self, cluster: np.ndarray, second_cluster: np.ndarray, further: np.ndarray | None = None
    ) -> Assignments:
        """Return the table with the clusters that the first and the second became, (n,) each.

        A sample whose two clusters became one has both probabilities and is not borderline.
        `further` are the clusters that those of `self.further` became. Where they change the most
        probable cluster of a sample, its distance is unknown.
        """
        joined = (second_cluster == cluster) & (second_cluster >= 0)
        table = replace(
            self,
            cluster=cluster,
            probability=self.probability + np.where(joined, self.second_probability, 0.0),
            second_cluster=np.where(joined, -1, second_cluster),
            second_probability=np.where(joined, 0.0, self.second_probability),
            flag=np.where(joined & (self.flag == BORDERLINE), "", self.flag),
            further=None,
        )
        if self.further is None or further is None or not len(further):
            return table
        rows, places = np.unique(self.further.row, return_inverse=True)
        own, width = np.arange(len(rows)), 1 + int(max(cluster.max(), further.max()))
        width = max(width, 1 + int(second_cluster.max()))
        at = np.concatenate([own, own, places])
        clusters = np.concatenate([cluster[rows], second_cluster[rows], further])
        two = self.probability[rows], self.second_probability[rows]
        p = np.concatenate([*two, self.further.probability])
        # Probabilities of one cluster add up; then the largest two of each row.
        keys, entries = np.unique((at * width + clusters)[clusters >= 0], return_inverse=True)
        sums = np.bincount(entries, p[clusters >= 0])
        order = np.lexsort((-sums, keys // width))
        at, clusters, sums = keys[order] // width, keys[order] % width, sums[order]
        start = np.searchsorted(at, own)
        after = np.minimum(start + 1, len(at) - 1)
        has_second = (after > start) & (at[after] == own)
        first, second = clusters[start], np.where(has_second, clusters[after], -1)
        p_first, p_second = sums[start], np.where(has_second, sums[after], 0.0)
        stays = first == table.cluster[rows]
        is_far = stays & (table.flag[rows] == OUTLIER)
        flag = np.where(p_second >= BORDERLINE_RATIO * p_first, BORDERLINE, "")
        found = (
            first,
            np.minimum(p_first, 1.0),
            second,
            p_second,
            np.where(stays, table.distance[rows], np.nan),
            np.where(is_far, OUTLIER, flag),
        )
        columns = {name: getattr(table, name).copy() for name in COLUMNS}
        columns["flag"] = columns["flag"].astype(object)
        for column, values in zip(columns.values(), found, strict=True):
            column[rows] = values
        return replace(table, **columns | {"flag": columns["flag"].astype(str)})

    def move(self, clusters: np.ndarray) -> Assignments:
        """Return the table with each sample in the cluster that a person chose.

        Where that is another one, the probability is 1, the second cluster the model's (with
        probability 0), the distance unknown, and there is no flag.
        """
        return self._put(clusters != self.cluster, clusters, 1.0, "")

    def discard(self, rows: np.ndarray) -> Assignments:
        """Return the table with some samples, (n,) bool, in no cluster.

        The cluster is -1, the second cluster the one that the sample was in, both with
        probability 0, and the flag says it.
        """
        return self._put(rows, -1, 0.0, DISCARDED)

    def _put(
        self, rows: np.ndarray, clusters: np.ndarray | int, probability: float, flag: str
    ) -> Assignments:
        return replace(
            self,
            cluster=np.where(rows, clusters, self.cluster),
            probability=np.where(rows, probability, self.probability),
            second_cluster=np.where(rows & (self.cluster >= 0), self.cluster, self.second_cluster),
            second_probability=np.where(rows, 0.0, self.second_probability),
            distance=np.where(rows, np.nan, self.distance),
            flag=np.where(rows, flag, self.flag),
        )

    def only(self, rows: Sequence[int] | np.ndarray) -> Assignments:
        """Return the table of these rows, in their order; `further` names rows of the whole one."""
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        return replace(self, names=[self.names[row] for row in rows], further=None, **columns)

    def to_csv(self) -> str:
        """Return the table as text, as in assignments.csv."""
        return "".join(self.csv_parts())

    def csv_parts(self) -> Iterator[str]:
        """Yield the text of `to_csv` in parts, the header first.

        Names of files and of clusters are marked where a spreadsheet would take them for formulas.
        """

        def lines() -> Iterator[list[str]]:
            yield list(self)
            for cells in self._lines():
                if self.heading == "path":
                    cells[0] = marked(cells[0], PATH)
                if self.cluster_names:
                    cells[-1] = marked(cells[-1], QUOTE)
                yield cells

        remaining = lines()
        while some := list(itertools.islice(remaining, PART_ROWS)):
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows(some)
            yield text.getvalue()

    def records(self) -> list[dict[str, Any]]:
        """Return a dictionary per sample, with numbers rounded as in the CSV; unknown is None."""
        kinds: dict[str, type] = {"cluster": int, "second_cluster": int}
        kinds |= dict.fromkeys(("probability", "second_probability", "distance"), float)
        return [
            {
                column: kinds.get(column, str)(cell) if cell else None
                for column, cell in zip(self, line, strict=True)
            }
            for line in self._lines()
        ]

    def _lines(self) -> Iterator[list[str]]:
        """Yield the cells of each sample as text; what is unknown is empty."""
        columns = (getattr(self, name).tolist() for name in COLUMNS)
        for name, cluster, p, second, p_second, distance, flag in zip(
            self.names, *columns, strict=True
        ):
            rest = [str(second), f"{p_second:.6f}"] if second >= 0 else ["", ""]
            far = "" if np.isnan(distance) else f"{distance:.6g}"
            last = [self.cluster_names.get(cluster, "")] if self.cluster_names else []
            yield [name, str(cluster), f"{p:.6f}", *rest, far, str(flag), *last]

    @classmethod
    def read(cls, path: Path, n_clusters: int | None = None) -> Self:
        """Read what `to_csv` wrote; an error says what is wrong with a damaged table.

        With `n_clusters` given, a cluster that is not one of these is an error too.
        """
        remedy = "Restore the file, or run probagg cluster again."
        with reading(path, remedy), open_regular(path) as file:
            text = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="")
            rows = (row for row in csv.reader(text) if row)
            table = cls._parse(next(rows, []), rows)
            known = np.iinfo(np.int64).max if n_clusters is None else n_clusters
            lowest = np.where(table.flag == DISCARDED, -1, 0)
            highest = max(table.cluster.max(), table.second_cluster.max())
            is_low = (table.cluster < lowest).any() or table.second_cluster.min() < -1
            if is_low or highest >= known:
                raise ValueError(f"a cluster is not among 0 to {known - 1}")
            p = np.concatenate([table.probability, table.second_probability])
            if not ((p >= 0.0) & (p <= 1.0)).all():
                raise ValueError("a probability is not between 0 and 1")
            return table

    @classmethod
    def _parse(cls, header: list[str], rows: Iterator[list[str]]) -> Self:
        """Return the table of lines of cells, which are read in parts."""
        if header[:1] == [""] or tuple(header[1:7]) != COLUMNS:
            raise ValueError(f"its first line is {','.join(header)[:80]!r}")
        names: list[str] = []
        cluster_names: dict[int, str] = {}
        parts = []
        while some := list(itertools.islice(rows, PART_ROWS)):
            if uneven := next((row for row in some if len(row) != len(header)), None):
                raise ValueError(
                    f"{uneven[0]!r} has {len(uneven)} cells, but the first line has {len(header)}"
                )
            cells = list(zip(*some, strict=True))
            names += [unmarked(c, PATH) for c in cells[0]] if header[0] == "path" else cells[0]
            if header[0] == "row":
                np.array(cells[0], np.int64)  # raises where a row is not a number
            first, p_first, second, p_second, distance, flag = cells[1:7]
            parts.append(
                (
                    np.array(first, np.int64),
                    np.array(p_first, float),
                    # What is unknown is empty.
                    np.array([k or -1 for k in second], np.int64),
                    np.array([p or 0.0 for p in p_second], float),
                    np.array([d or np.nan for d in distance], float),
                    np.array(flag, str),
                )
            )
            if header[7:8] == ["name"]:
                labels = zip(parts[-1][0].tolist(), cells[7], strict=True)
                cluster_names |= {k: unmarked(label, QUOTE) for k, label in labels if label}
        if not names:
            raise ValueError("it has no samples")
        columns = _join_columns(parts)
        return cls(names, **columns, heading=header[0], cluster_names=cluster_names)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame of the columns, with names that are valid text."""
        columns: dict[str, Any] = dict(self)
        if self.heading != "row":  # a file name need not be valid
            columns[self.heading] = [
                name.encode("utf-8", "replace").decode() for name in self.names
            ]
        return import_optional("pandas", "A DataFrame", "table").DataFrame(columns)


def _join_columns(parts: Sequence[tuple[np.ndarray, ...]]) -> dict[str, Any]:
    """Return the columns of a table by name from parts, each with the arrays of `COLUMNS`."""
    joined = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return dict(zip(COLUMNS, joined, strict=True))


def parts_of(P: Any) -> Iterator[slice]:
    """Return slices of all rows of P (n, K), at least one."""
    size = max(1, PART_NUMBERS // P.shape[1])
    return chunks(P.shape[0], size) if P.shape[0] else iter([slice(0, 0)])


def overlaps(P: Any, assigned: Assignments, most: int = 50) -> list[tuple[int, int, float, int]]:
    """Return the pairs of clusters that the model confuses most, the worst first.

    Each is (first, second, mean_probability, samples): the mean probability that samples of either
    cluster give to the other, and how many of them are borderline between the two.
    """
    K = P.shape[1]
    given = np.zeros((K, K))
    for rows in parts_of(P):
        np.add.at(given, assigned.cluster[rows], P[rows])
    sizes = np.bincount(assigned.cluster, minlength=K)
    borderline = assigned.flag == BORDERLINE
    between = np.zeros((K, K), int)
    if K > 1:
        np.add.at(between, (assigned.cluster[borderline], assigned.second_cluster[borderline]), 1)
    mean = (given + given.T) / np.maximum(sizes[:, None] + sizes, 1)
    between = between + between.T
    chosen = np.argwhere(np.triu((mean >= 0.0005) | (between > 0), 1)).tolist()
    pairs = [(a, b, float(mean[a, b]), int(between[a, b])) for a, b in chosen]
    return sorted(pairs, key=lambda pair: -pair[2])[:most]


@dataclass(frozen=True)
class Yardstick:
    """The centre of each cluster, and the distance from which a sample is an outlier.

    A distance is to the mean of the cluster's samples: 1 - cos to the mean of the unit rows for
    cosine, Euclidean otherwise. New samples are measured with it too, so that their flags mean the
    same.
    """

    metric: str
    centers: np.ndarray  # (K, D)
    limits: np.ndarray  # (K,)

    @classmethod
    def of(
        cls,
        X: Any,
        labels: np.ndarray,
        n_clusters: int,
        metric: str,
        ignored: np.ndarray | None = None,
    ) -> Self:
        """Measure the samples that formed the clusters, without those `ignored`, (n,) bool.

        A sample pulls the mean towards itself, so limits are quantiles of distances to the mean of
        the others, as for new samples. In clusters of one or two samples nothing is an outlier. A
        cluster of ignored samples alone is measured with them.
        """
        measured = np.ones(len(labels), bool) if ignored is None else ~ignored
        measured |= (np.bincount(labels[measured], minlength=n_clusters) == 0)[labels]
        centers = np.zeros((n_clusters, X.shape[1]), np.float64)
        for rows in _chunks(X):
            some = measured[rows]
            np.add.at(centers, labels[rows][some], _rows(X[rows], metric)[some])
        sizes = np.bincount(labels[measured], minlength=n_clusters)
        centers /= np.maximum(sizes, 1)[:, None]
        limits = np.full(n_clusters, np.inf)
        distances = cls(metric, centers, limits).distances(X, labels)
        for cluster in np.flatnonzero(sizes > 2):
            members = measured & (labels == cluster)
            without = distances[members] * sizes[cluster] / (sizes[cluster] - 1)
            low, high, most = np.quantile(without, (0.25, 0.75, 1.0 - MAX_OUTLIERS))
            fence = high + FENCE * (high - low)
            limits[cluster] = max(fence, most) if sizes[cluster] * MAX_OUTLIERS > 1 else fence
        return cls(metric, centers, limits)

    def distances(self, X: Any, labels: np.ndarray) -> np.ndarray:
        """Return the distance (n,) of each row to the centre of its cluster."""
        found = np.empty(X.shape[0])
        for rows in _chunks(X):
            x, center = _rows(X[rows], self.metric), self.centers[labels[rows]]
            if self.metric == "cosine":
                norm = np.linalg.norm(center, axis=1)
                cosine = (x * center).sum(1) / np.maximum(norm, 1e-300)
                found[rows] = (1.0 - cosine).clip(0.0)  # rounding makes copies negative
            else:
                found[rows] = np.linalg.norm(x - center, axis=1)
        return found

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one safetensors file."""
        tensors = {"centers": self.centers, "limits": self.limits}
        write_safetensors(path, YARDSTICK_FORMAT, tensors, {"metric": self.metric})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what `save` wrote."""
        tensors, description = read_safetensors(path, YARDSTICK_FORMAT)
        with reading(path, RESTORE):
            metric, centers, limits = description["metric"], tensors["centers"], tensors["limits"]
            if centers.ndim != 2 or limits.shape != centers.shape[:1] or type(metric) is not str:
                raise ValueError("its arrays do not belong together")
            if not np.isfinite(centers).all() or np.isnan(limits).any():
                raise ValueError("some of its numbers are not finite")
        return cls(metric, centers, limits)


def _rows(X: Any, metric: str) -> np.ndarray:
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, np.float64)
    return unit_rows(X) if metric == "cosine" else X


def _chunks(X: Any) -> Iterator[slice]:
    size = max(1, _CHUNK_NUMBERS // X.shape[1]) if hasattr(X, "toarray") else _CHUNK
    return chunks(X.shape[0], size)
