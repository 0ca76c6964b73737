"""The table of a run: the cluster of each sample, the second one, distances and flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from probagg.app.assignments.frames import import_package, parquet_bytes, valid_columns
from probagg.app.assignments.text import (
    BORDERLINE,
    COLUMNS,
    DISCARDED,
    OUTLIER,
    csv_parts,
    join_columns,
    read_fields,
    records,
)
from probagg.app.yardstick import Yardstick
from probagg.arrays import chunks

PART_NUMBERS = 2**22  # probabilities in memory at once
BORDERLINE_RATIO = 0.5  # of the second probability to the first, from which a sample is borderline


@dataclass(frozen=True, eq=False)
class Assignments:
    """The table of a run, which also behaves as a read-only mapping of NumPy columns.

    Column names are those of assignments.csv; the first is `heading`. As with a DataFrame, `len`
    is the number of samples and iteration goes over the column names.

    >>> P = np.array([[0.9, 0.1], [0.4, 0.6]])
    >>> table = Assignments.of(P, P, None, ["a.jpg", "b.jpg"], heading="path")
    >>> table
    Assignments: 2 samples, 2 clusters, 1 borderline, 0 outliers
    >>> table["cluster"], table["path"]
    (array([0, 1]), array(['a.jpg', 'b.jpg'], dtype=object))
    >>> list(table)[:3]
    ['path', 'cluster', 'probability']
    """

    names: list[str]  # paths of images, row numbers, or ids of a table
    cluster: np.ndarray  # int64; -1 where a person discarded the sample
    probability: np.ndarray
    second_cluster: np.ndarray  # int64; -1 where there is only one cluster
    second_probability: np.ndarray
    distance: np.ndarray  # NaN where unknown
    flag: np.ndarray  # "" or one of BORDERLINE, OUTLIER, DISCARDED; an outlier is not borderline
    heading: str = "row"  # of the first column: path, row, or the name of a table's id
    cluster_names: dict[int, str] = field(default_factory=dict)  # a last column, if there are any

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
        groups: np.ndarray | Callable[[Any], np.ndarray] | None = None,
        *,
        heading: str = "row",
    ) -> Self:
        """Assign samples by probabilities P (n, K), with X (n, D) the features behind them.

        Both are read in slices of rows, so they need not be in memory. `groups` gives the cluster
        that each is merged into, (K,), or a function does, of rows of X: (n, K). Probabilities add
        up, and distances are to the centre of the most probable of the clusters that were merged.
        """
        parts = [cls._columns(P[rows], X[rows], yardstick, groups) for rows in parts_of(P)]
        return cls([str(name) for name in names], **join_columns(parts), heading=heading)

    @staticmethod
    def _columns(
        P: np.ndarray,
        X: Any,
        yardstick: Yardstick | None,
        groups: np.ndarray | Callable[[Any], np.ndarray] | None,
    ) -> tuple[np.ndarray, ...]:
        """Return all columns but the names, of some samples (see `of`)."""
        every, own = np.arange(len(P)), P.argmax(1)
        groups = groups(X) if callable(groups) else groups
        survivors = np.arange(P.shape[1])
        if groups is not None and not (groups == survivors).all():
            survivors = np.unique(groups)
            places = np.broadcast_to(np.searchsorted(survivors, groups), P.shape)
            merged = np.zeros((len(P), len(survivors)), P.dtype)
            np.add.at(merged, (every[:, None], places), P)
            parts = np.where(places == merged.argmax(1)[:, None], P, -1.0)
            P, own = merged, parts.argmax(1)
        ranked = np.argsort(-P, axis=1, kind="stable")[:, :2]
        first, p_first = survivors[ranked[:, 0]], P[every, ranked[:, 0]]
        second, p_second = np.full(len(P), -1), np.zeros(len(P), P.dtype)
        if len(survivors) > 1:
            second, p_second = survivors[ranked[:, 1]], P[every, ranked[:, 1]]
        distance, far = np.full(len(P), np.nan), np.zeros(len(P), bool)
        if yardstick is not None:
            distance = yardstick.distances(X, own)
            far = distance > yardstick.limits[own]
        flag = np.where(p_second >= BORDERLINE_RATIO * p_first, BORDERLINE, "")
        flag = np.where(far, OUTLIER, flag)
        return first, p_first, second, p_second, distance, flag

    def relabel(self, cluster: np.ndarray, second_cluster: np.ndarray) -> Assignments:
        """Return the table with the clusters that the first and the second became, (n,) each.

        A sample whose two clusters became one has both probabilities and is not borderline.
        """
        joined = (second_cluster == cluster) & (second_cluster >= 0)
        return replace(
            self,
            cluster=cluster,
            probability=self.probability + np.where(joined, self.second_probability, 0.0),
            second_cluster=np.where(joined, -1, second_cluster),
            second_probability=np.where(joined, 0.0, self.second_probability),
            flag=np.where(joined & (self.flag == BORDERLINE), "", self.flag),
        )

    def move(self, clusters: np.ndarray) -> Assignments:
        """Return the table with each sample in the cluster that a person chose.

        Where that is another one, the probability is 1, the second cluster the model's (with
        probability 0), the distance unknown, and there is no flag.
        """
        moved = clusters != self.cluster
        return replace(
            self,
            cluster=clusters,
            probability=np.where(moved, 1.0, self.probability),
            second_cluster=np.where(moved, self.cluster, self.second_cluster),
            second_probability=np.where(moved, 0.0, self.second_probability),
            distance=np.where(moved, np.nan, self.distance),
            flag=np.where(moved, "", self.flag),
        )

    def discard(self, rows: np.ndarray) -> Assignments:
        """Return the table with some samples, (n,) bool, in no cluster.

        The cluster is -1, the second cluster the one that the sample was in, both with
        probability 0, and the flag says it.
        """
        gone = rows & (self.cluster >= 0)
        return replace(
            self,
            cluster=np.where(rows, -1, self.cluster),
            probability=np.where(rows, 0.0, self.probability),
            second_cluster=np.where(gone, self.cluster, self.second_cluster),
            second_probability=np.where(rows, 0.0, self.second_probability),
            distance=np.where(rows, np.nan, self.distance),
            flag=np.where(rows, DISCARDED, self.flag),
        )

    def to_csv(self) -> str:
        """Return the table as text, as in assignments.csv."""
        return "".join(self.csv_parts())

    def csv_parts(self) -> Iterator[str]:
        """Yield the text of `to_csv` in parts."""
        return csv_parts(self)

    def records(self) -> list[dict[str, Any]]:
        """Return a dictionary per sample, with numbers rounded as in the CSV; unknown is None."""
        return records(self)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame of the columns."""
        return import_package("pandas").DataFrame(valid_columns(self))

    def to_polars(self) -> Any:
        """Return a polars DataFrame of the columns."""
        return import_package("polars").DataFrame(valid_columns(self))

    def to_parquet(self) -> bytes:
        """Return the content of a Parquet file; a missing second cluster is null."""
        return parquet_bytes(self)

    @classmethod
    def read(cls, path: Path, n_clusters: int | None = None) -> Self:
        """Read what `to_csv` wrote; an error says what is wrong with a damaged table.

        With `n_clusters` given, a cluster that is not one of these is an error too.
        """
        return cls(**read_fields(path, n_clusters))


def parts_of(P: Any) -> Iterator[slice]:
    """Return slices of all rows of P (n, K), at least one."""
    n, size = P.shape[0], max(1, PART_NUMBERS // P.shape[1])
    return chunks(n, size) if n else iter([slice(0, 0)])


def overlaps(P: Any, assigned: Assignments, most: int = 50) -> list[tuple]:
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
    pairs = []
    for a in range(K):
        for b in range(a + 1, K):
            mean = (given[a, b] + given[b, a]) / max(sizes[a] + sizes[b], 1)
            if mean >= 0.0005 or between[a, b] + between[b, a]:
                pairs.append((a, b, float(mean), int(between[a, b] + between[b, a])))
    return sorted(pairs, key=lambda pair: -pair[2])[:most]
