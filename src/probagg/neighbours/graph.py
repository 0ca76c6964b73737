"""The nearest rows of each row, and how well labels agree with them.

Rows are NumPy arrays, SciPy sparse matrices or torch tensors.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable

import numpy as np

from probagg.aggregation import LINEAR_METRICS, Array, embed
from probagg.arrays import chunks, is_tensor, like, to_numpy
from probagg.progress import logger

SIMILARITIES = 2**27  # of tensors, computed at a time: 512 MB
# Up to so many columns a k-d tree is faster than all distances.
TREE_COLUMNS = 8
# Among so many rows of more columns, faiss finds nearly all of the nearest much faster.
MANY_ROWS = 50_000
# faiss divides N rows into 4 sqrt(N) cells, and searches so many of them.
CELLS = 32


def nearest_rows(
    X: Array,
    n: int,
    metric: str | Callable[..., float] = "sqeuclidean",
    among: Array | None = None,
) -> Array:
    """Return the numbers of the n nearest rows of each row of X, (rows, n), nearest first.

    They are rows of `among`. Without it they are rows of X, a row itself not among them, and n is
    at most their number less one. Any metric of `sklearn.metrics.pairwise_distances` will do. The
    search is exact, but approximate among 50,000 rows or more of more than eight columns where
    faiss is installed.

    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]])
    >>> nearest_rows(X, 1, "cosine").tolist(), nearest_rows(X[:1], 2, among=X).tolist()
    ([[2], [3], [0], [1]], [[0, 2]])
    """
    if among is None:
        n = min(n, X.shape[0] - 1)
    if is_tensor(X) and metric in LINEAR_METRICS:
        return _nearest_tensors(X, n, str(metric), among)
    rows, queries = plain_rows(X if among is None else among), None
    if among is not None:
        queries = rows if among is X else plain_rows(X)
    is_narrow = rows.shape[1] <= TREE_COLUMNS
    is_dense, is_linear = not _is_sparse(rows), metric in LINEAR_METRICS
    if rows.shape[0] >= MANY_ROWS and is_linear and is_dense and not is_narrow and _has_faiss():
        return like(_nearly_nearest(rows, n, str(metric), queries), X)
    from sklearn.neighbors import NearestNeighbors  # slow to import

    metric = "euclidean" if metric == "sqeuclidean" else metric  # the same order
    uses_tree = is_narrow and is_dense and metric == "euclidean"
    algorithm = "kd_tree" if uses_tree else "brute"
    search = NearestNeighbors(n_neighbors=n, metric=metric, algorithm=algorithm).fit(rows)
    return like(search.kneighbors(queries, return_distance=False), X)


def _has_faiss() -> bool:
    if importlib.util.find_spec("faiss") is not None:
        return True
    logger.info(
        "All distances are computed to find neighbours, which takes long. Faster: pip install "
        "faiss-cpu"
    )
    return False


def _nearly_nearest(
    rows: np.ndarray, n: int, metric: str, queries: np.ndarray | None
) -> np.ndarray:
    """Return almost what `nearest_rows` does, by an inverted file of faiss."""
    import faiss

    points = embed(rows, metric)
    mean = points.mean(0)  # a common offset would cost precision
    points = np.ascontiguousarray(points - mean, np.float32)
    width, n_cells = points.shape[1], int(4 * len(points) ** 0.5)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(width), width, n_cells)
    index.train(points)
    index.add(points)
    index.nprobe = CELLS
    if queries is not None:
        if queries is not rows:
            points = np.ascontiguousarray(embed(queries, metric) - mean, np.float32)
        return index.search(points, n)[1]
    return without_themselves(index.search(points, n + 1)[1])


def without_themselves(near: np.ndarray) -> np.ndarray:
    """Return neighbours with one fewer: the row itself, or, behind duplicates, the last."""
    keep = near != np.arange(len(near))[:, None]
    keep[keep.all(1), -1] = False
    return near[keep].reshape(len(near), -1)


def _nearest_tensors(X: Array, n: int, metric: str, among: Array | None) -> Array:
    torch = sys.modules["torch"]
    with torch.no_grad(), torch.autocast(X.device.type, enabled=False):
        queries = embed(X, metric)
        rows = queries if among is None or among is X else embed(among, metric)
        mean = rows.mean(0)  # a common offset would cost precision
        queries, rows = queries - mean, rows - mean
        half = 0.5 * (rows * rows).sum(1)  # |x - y|^2 is smallest where xy - |y|^2 / 2 is largest
        found = torch.empty((len(queries), n), dtype=torch.int64, device=X.device)
        for block in chunks(len(queries), max(1, SIMILARITIES // len(rows))):
            similarity = queries[block] @ rows.T - half
            if among is None:
                similarity.diagonal(block.start).fill_(-torch.inf)
            found[block] = similarity.topk(n).indices
        return found


def plain_rows(X: Array) -> Array:
    """Return rows as scikit-learn takes them: not as a tensor, nor as CSR with 64-bit indices."""
    if not _is_sparse(X):
        return to_numpy(X)
    from scipy.sparse import csr_array

    X = X.tocsr()
    arrays = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return csr_array(arrays, shape=X.shape)


def _is_sparse(X: Array) -> bool:
    return hasattr(X, "tocsr")


def mean_over(near: Array, Q: Array) -> Array:
    """Return the mean of Q over the neighbours of each row."""
    return sum(Q[column] for column in near.T) / near.shape[1]


def modularity(near: Array, labels: Array) -> float:
    """Return the share of neighbours with the row's own label, less the share by chance.

    >>> modularity(np.array([[0, 1], [1, 0], [2, 3], [3, 2]]), np.array([0, 0, 1, 1]))
    0.5
    """
    near, labels = to_numpy(near), to_numpy(labels)
    return float((labels[near] == labels[:, None]).mean() - share_by_chance(labels))


def share_by_chance(labels: np.ndarray) -> float:
    """Return the share of neighbours with the row's own label, of random labels of these sizes."""
    return float(((np.bincount(labels) / len(labels)) ** 2).sum())


def kappa(inside: float, by_chance: float) -> float:
    """Return a share of neighbours with the row's own label, corrected for chance.

    It is 0 for random labels of the same sizes, and 1 where all neighbours have the same label.
    """
    return (inside - by_chance) / max(1.0 - by_chance, 1e-12)


def neighbour_agreement(
    labels: np.ndarray, near: np.ndarray, n_clusters: int
) -> tuple[float, float]:
    """Return how often neighbours, of all rows or of the first ones, have a row's own label.

    First over rows, corrected for chance; then the mean over clusters, where a cluster of a few
    outliers counts as much as any.
    """
    own = labels[: len(near)]
    same = (labels[near] == own[:, None]).mean(1)
    sizes = np.bincount(own, minlength=n_clusters)
    means = np.bincount(own, same, n_clusters) / np.maximum(sizes, 1)
    return kappa(float(same.mean()), share_by_chance(labels)), float(means.mean())
