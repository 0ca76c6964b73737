"""What is shown of each cluster: typical, uncertain and far samples, numbers, a colour."""

import colorsys
import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from probagg.app.assignments import BORDERLINE, OUTLIER
from probagg.app.report.contents import Contents, Pair
from probagg.app.review import MAX_NAME
from probagg.data.tables import date_text
from probagg.metrics import evaluate

QUARTILES_APART = 1.35  # standard deviations of a Gaussian
PAIRS = 20  # overlapping pairs on the page; more are in overlaps.csv
# Colours of clusters on a light and on a dark page, each far from those before it (in OKLab).
LIGHT = (
    "#008096", "#f07554", "#7c0f5f", "#b781ec", "#86af2d", "#754b05", "#35369b", "#057918",
    "#49a2fe", "#987485", "#ac3033", "#2fb6a1", "#0b5445", "#9d4ba5", "#533f59", "#b49b6a",
    "#e86fa5", "#606ab4", "#85a2bc", "#67785a", "#ba690a", "#0f4b77", "#693c91", "#8e821d",
)  # fmt: skip
DARK = (
    "#53a6b9", "#ffa688", "#9f4782", "#ddb0ff", "#b1d772", "#987243", "#5862b9", "#509e51",
    "#83ccff", "#bd9dac", "#cf6460", "#79ddca", "#437869", "#c179c7", "#76647c", "#dac59a",
    "#ffa1cd", "#8893d5", "#b2cbe2", "#8f9e83", "#dd9557", "#437097", "#8c67b1", "#b4aa5e",
)  # fmt: skip


class Counts(NamedTuple):
    """The number of samples of each kind that are shown per cluster."""

    typical: int
    uncertain: int
    farthest: int


class ShownCluster:
    """A cluster as the page shows it; samples are rows of the table.

    `merged` are the clusters that a person merged into this one, `whole` is the cluster that was
    split and of which this one is a part. `majority` is the most common class and `purity` its
    share; `high` and `low` are columns of a matrix.
    """

    def __init__(
        self,
        contents: Contents,
        k: int,
        members: np.ndarray,
        counts: Counts,
        contrasts: tuple[list[str], list[str]],
    ) -> None:
        samples, review, size = contents.samples, contents.review, len(members)
        self.number, self.name, self.is_named = k, review.name_of(k), k in review.names
        self.merged = [j for j in np.flatnonzero(contents.groups == k).tolist() if j != k]
        self.whole = next((s.cluster for s in review.splits if k in s.parts), None)
        self.size, self.share = size, size / max(1, int(contents.kept.sum()))
        self.mean_probability = float(samples.probability[members].mean()) if size else np.nan
        self.n_borderline = int((samples.flag[members] == BORDERLINE).sum())
        self.n_outliers = int((samples.flag[members] == OUTLIER).sum())
        self.n_moved = int(contents.moved[members].sum())
        self.typical, self.uncertain, self.farthest = select(contents, members, counts)
        pairs = (p for p in contents.pairs[:PAIRS] if k in (p.first, p.second) and p.samples)
        self.neighbours = list(pairs)[:3]
        self.majority, self.purity = _majority(contents.classes or [None] * len(samples), members)
        self.high, self.low = contrasts
        self.suggestions = [] if self.is_named else _looks(contents).get(k, [])

    @property
    def rows(self) -> list[int]:
        """All samples shown."""
        return [*self.typical, *self.uncertain, *self.farthest]


def describe_clusters(contents: Contents, counts: Counts) -> list[ShownCluster]:
    """Return the clusters that remain after the review, in the order of their numbers."""
    order = np.argsort(contents.samples.cluster, kind="stable")
    ends = np.searchsorted(contents.samples.cluster[order], np.arange(len(contents.groups) + 1))
    contrasts = _contrasts(contents)
    return [
        ShownCluster(contents, k, order[ends[k] : ends[k + 1]], counts, contrasts.get(k, ([], [])))
        for k in contents.clusters
    ]


def select(
    contents: Contents, members: np.ndarray, counts: Counts
) -> tuple[list[int], list[int], list[int]]:
    """Return the typical, least certain and farthest samples of a cluster; none is shown twice.

    Of near-duplicates, only the representative is shown.

    Typical: the most probable, then the nearest. Least certain: borderline samples, then the
    smallest margins. Farthest: outliers, then the largest distances. Moved samples are the least
    typical, and count as having the smallest margins.
    """
    members = members[~contents.folded[members]]
    samples, moved = contents.samples, contents.moved[members]
    distance = np.nan_to_num(samples.distance[members], nan=np.inf)
    p = np.where(moved, -1.0, samples.probability[members])
    flag = samples.flag[members]
    by_p = members[np.lexsort((distance, -p))]
    clear = by_p[samples.flag[by_p] == ""]
    typical = (clear if len(clear) else by_p)[: counts.typical]
    margin = np.where(moved, -1.0, _margins(contents, members))
    by_margin = members[np.lexsort((margin, flag != BORDERLINE))]
    uncertain = _first(by_margin, counts.uncertain, typical, avoid=members[flag == OUTLIER])
    far = np.nan_to_num(samples.distance[members], nan=-np.inf)
    by_distance = members[np.lexsort((-far, flag != OUTLIER))]
    taken = np.concatenate([typical, uncertain])
    farthest = _first(by_distance, counts.farthest, taken, avoid=members[flag == BORDERLINE])
    return typical.tolist(), uncertain.tolist(), farthest.tolist()


def _margins(contents: Contents, rows: np.ndarray) -> np.ndarray:
    """Return how much more probable the cluster of each sample is than the second one."""
    return contents.samples.probability[rows] - contents.samples.second_probability[rows]


def _first(ranked: np.ndarray, n: int, taken: np.ndarray, avoid: np.ndarray) -> np.ndarray:
    return ranked[~np.isin(ranked, taken) & ~np.isin(ranked, avoid)][:n]


def _majority(classes: list[str | None], members: np.ndarray) -> tuple[str | None, float | None]:
    """Return the most common known class of the samples, and its share of the known ones."""
    counts = Counter(name for row in members if (name := classes[row]) is not None)
    if not counts:
        return None, None
    name, count = counts.most_common(1)[0]
    return name, count / counts.total()


def _contrasts(contents: Contents) -> dict[int, tuple[list[str], list[str]]]:
    """Return the columns in which each cluster's median is far above and far below the others'.

    Far is by the spread of all rows, between clusters and within them: medians of a column that has
    nothing to do with the clusters differ a little too.
    """
    profiles = contents.profiles
    if profiles is None or len(profiles.clusters) < 2:
        return {}
    known = np.isfinite(profiles.median)
    middle = np.where(known, profiles.median, profiles.median.mean(axis=0, where=known))
    within = (profiles.q75 - profiles.q25) / QUARTILES_APART
    share = middle.clip(0.0, 1.0)
    within = np.where(np.array(profiles.kinds) == "share", np.sqrt(share * (1.0 - share)), within)
    variance = middle.var(axis=0) + (np.nan_to_num(within) ** 2).mean(axis=0)
    Z = np.nan_to_num((middle - middle.mean(axis=0)) / np.maximum(np.sqrt(variance), 1e-12))
    contrasts = {}
    for k, z in zip(profiles.clusters, Z, strict=True):
        order = np.argsort(-z, kind="stable")
        high = [profiles.columns[j] for j in order[:3] if z[j] > 0.5]
        contrasts[k] = high, [profiles.columns[j] for j in order[::-1][:3] if z[j] < -0.5]
    return contrasts


def _looks(contents: Contents) -> dict[int, list[str]]:
    """Return names by the backbone's classifier; none fits a loose cluster."""
    return {k: names for k, names in contents.suggestions.items() if k not in contents.loose}


def suggested_names(contents: Contents) -> dict[int, list[str]]:
    """Return names for clusters: classes of ImageNet, or the columns that tell them from others."""
    found = _looks(contents)
    for k, (high, low) in _contrasts(contents).items():
        words = [f"high {column}" for column in high] + [f"low {column}" for column in low]
        if words:
            names = (", ".join(words[:2]), words[0])
            found[k] = list(dict.fromkeys(name[:MAX_NAME] for name in names))
    return found


def between(contents: Contents, pair: Pair, n: int) -> list[int]:
    """Return samples between two clusters, those with the smallest margin first."""
    samples, (a, b) = contents.samples, (pair.first, pair.second)
    ways = ((samples.cluster == a) & (samples.second_cluster == b)) | (
        (samples.cluster == b) & (samples.second_cluster == a)
    )
    rows = np.flatnonzero(ways & (samples.flag != OUTLIER) & ~contents.moved & ~contents.folded)
    return rows[np.argsort(_margins(contents, rows), kind="stable")][:n].tolist()


def class_scores(contents: Contents) -> dict[str, float] | None:
    """Return ACC, NMI, ARI and the number `n` of samples with a known class; None without any."""
    if contents.classes is None:
        return None
    known = np.array([name is not None for name in contents.classes]) & contents.kept
    if not known.any():
        return None
    given = np.array(contents.classes, object)[known].astype(str)
    return evaluate(given, contents.samples.cluster[known]) | {"n": int(known.sum())}


def amount(value: float, kind: str) -> str:
    """Return a number, a date from days since 1970, or a share in per cent, as short text.

    >>> amount(2.0, "date"), amount(0.125, "share"), amount(0.125, "number")
    ('1970-01-03', '12%', '0.125')
    """
    if math.isnan(value):
        return "-"
    if kind == "date":
        return date_text(math.floor(value))
    return f"{value:.0%}" if kind == "share" else short(value)


def palette(n: int) -> list[tuple[str, str]]:
    """Return `n` different pairs of colours, for light and dark pages.

    >>> palette(1)
    [('#008096', '#53a6b9')]
    """
    pairs = list(zip(LIGHT, DARK, strict=True))[:n]
    for k in range(len(pairs), n):
        # Turned by the golden angle, so that hues of neighbouring numbers are far apart.
        hue, lightness = 0.618034 * k % 1.0, 0.36 + 0.06 * (k % 3)
        shades = (colorsys.hls_to_rgb(hue, lightness + lift, 0.5) for lift in (0.0, 0.18))
        pair = ["#" + "".join(f"{round(255 * v):02x}" for v in rgb) for rgb in shades]
        pairs.append((pair[0], pair[1]))
    return pairs


def cell(text: str) -> str:
    """Return a cell of a CSV table, a number in few characters.

    >>> cell("0.123456"), cell("no number")
    ('0.123', 'no number')
    """
    try:
        return short(float(text))
    except ValueError:
        return text


def short(value: float) -> str:
    """Return a number in few characters.

    >>> short(0.12345), short(1234.5), short(1.5e8)
    ('0.123', '1234', '1.50e8')
    """
    if not math.isfinite(value):
        return "-"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{value:.2e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
