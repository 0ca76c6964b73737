"""Spaces in which the rows of a group are close even where the group is not compact.

Both transformers average numbers of fitted rows over the nearest fitted rows of each row, so new
rows are transformed as fitted ones are.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from probagg.aggregation import LINEAR_METRICS
from probagg.arrays import unit_rows
from probagg.environment import check_memory
from probagg.neighbours.graph import nearest_rows

# Graphs of so many rows per coordinate, or fewer, are decomposed whole.
DENSE = 4
# Of the polynomials by which eigenvectors are found: degree, most of them, and the error left.
DEGREE, MOST_FILTERS, TOLERANCE = 20, 50, 1e-5

_SHARED: dict[str, list[Any]] = {
    "n_neighbors": [Interval(Integral, 1, None, closed="left")],
    "metric": [StrOptions(set(LINEAR_METRICS))],
}


class _NeighbourMeans(TransformerMixin, BaseEstimator):
    """Transformers that average the values of fitted rows over the nearest ones of each row."""

    n_neighbors: int
    metric: str

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the neighbours of the rows of X among each other."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit to X and return it transformed, as `fit(X).transform(X)` would, but faster."""
        self._validate_params()
        rows = self._checked(X, reset=True)
        near = self._nearest(rows, among=rows)
        self._rows, self._values = rows, self._values_of(rows, near)
        return self._finish(means(near, self._values))

    def transform(self, X: Any) -> Any:
        """Return rows of X, fitted or new, in the space."""
        check_is_fitted(self)
        rows = self._checked(X, reset=False)
        near = self._nearest(rows, among=self._rows)
        return self._finish(means(near, self._values)).astype(rows.dtype, copy=False)

    def _nearest(self, rows: Any, among: Any) -> np.ndarray:
        """Return the nearest of some rows to each row; one of them is nearest to itself."""
        n = min(self.n_neighbors + 1, among.shape[0])
        return nearest_rows(rows, n, self.metric, among=among)

    def _values_of(self, rows: Any, near: np.ndarray) -> Any:
        """Return the numbers of fitted rows that are averaged over neighbours."""
        raise NotImplementedError

    def _finish(self, means: Any) -> Any:
        """Return coordinates from means over neighbours."""
        return means

    def _checked(self, X: Any, *, reset: bool) -> Any:
        dtype = [np.float64, np.float32]
        rows = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=dtype)
        return sp.csr_array(rows) if sp.issparse(rows) else rows

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_values")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def means(near: np.ndarray, values: Any) -> Any:
    """Return the means of values over the neighbours of each row, in the type of the values.

    >>> means(np.array([[0, 1], [2, 2]]), np.array([[0.0], [1.0], [5.0]]))
    array([[0.5],
           [5. ]])
    """
    return _walk(near, values.shape[0], values.dtype) @ values


def _walk(near: np.ndarray, n: int, dtype: Any) -> sp.csr_array:
    """Return the matrix that takes n values to the means over the neighbours of each row."""
    rows, k = near.shape
    indptr = np.arange(0, rows * k + 1, k)
    weights = np.full(rows * k, 1.0 / k, dtype)
    return sp.csr_array((weights, near.ravel(), indptr), shape=(rows, n))


class SmoothedRows(OneToOneFeatureMixin, _NeighbourMeans):
    """Rows averaged over their nearest rows, again and again.

    Groups contract, so that clusters of about equal extent (PAC's, k-means') fit them better.
    Columns keep their meaning. Memory and all but the search of neighbours are linear in the number
    of rows. A sparse X stays sparse, but fills up with each round.

    Parameters
    ----------
    n_neighbors : int, default=10
        The number of nearest fitted rows that a row is averaged with.
    rounds : int, default=10
        How often. New rows are averaged once, over fitted rows of the last round but one.
    metric : {"sqeuclidean", "cosine"}, default="sqeuclidean"
        What is near.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from probagg import PAC, SmoothedRows, clustering_accuracy
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_pipeline(SmoothedRows(), PAC(10, random_state=0)).fit(X[:900])
    >>> model.predict_proba(X[900:]).shape
    (897, 10)
    >>> clustering_accuracy(y[900:], model.predict(X[900:])) > 0.8
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = _SHARED | {
        "rounds": [Interval(Integral, 1, None, closed="left")]
    }

    def __init__(
        self, n_neighbors: int = 10, rounds: int = 10, *, metric: str = "sqeuclidean"
    ) -> None:
        self.n_neighbors = n_neighbors
        self.rounds = rounds
        self.metric = metric

    def _values_of(self, rows: Any, near: np.ndarray) -> Any:
        for _ in range(self.rounds - 1):
            rows = means(near, rows)
        return rows


class GraphCoordinates(ClassNamePrefixFeaturesOutMixin, _NeighbourMeans):
    """Coordinates of rows on the graph of nearest neighbours, as in spectral clustering.

    The eigenvectors of the random walk on the graph, each multiplied by a power of its eigenvalue,
    and each row divided by its length (Ng, Jordan and Weiss, 2001; Coifman and Lafon's diffusion
    maps, 2006). Rows that many short paths connect are close, whatever the shape of their group.
    A new row gets the mean of its nearest fitted rows (the Nystroem formula).

    Parameters
    ----------
    n_components : int, default=20
        The number of coordinates; about twice the number of clusters.
    n_neighbors : int, default=10
        The number of nearest fitted rows that a row is connected with.
    steps : int, default=3
        The power of the eigenvalues: the number of steps of the random walk after which rows are
        compared. More steps leave less of the later coordinates.
    metric : {"sqeuclidean", "cosine"}, default="sqeuclidean"
        What is near.

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (n_components,)
        Those of the random walk, in falling order, the first one 1. A gap after the K-th hints at K
        clusters.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.pipeline import make_pipeline
    >>> from probagg import PAC, GraphCoordinates, clustering_accuracy
    >>> X, y = make_moons(500, noise=0.05, random_state=0)
    >>> model = make_pipeline(GraphCoordinates(2), PAC(2, random_state=0))
    >>> clustering_accuracy(y, model.fit_predict(X))
    1.0
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = _SHARED | {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "steps": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_components: int = 20,
        n_neighbors: int = 10,
        *,
        steps: int = 3,
        metric: str = "sqeuclidean",
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.steps = steps
        self.metric = metric

    def _values_of(self, rows: Any, near: np.ndarray) -> np.ndarray:
        N = len(near)
        check_memory(3.0 * 8 * N * self.n_components, "coordinates", "Ask for fewer.")
        walk = _walk(near, N, np.float64)
        edges = ((walk + walk.T) > 0).astype(np.float64)
        scale = 1.0 / np.sqrt(edges.sum(1))
        graph = (sp.diags_array(scale) @ edges @ sp.diags_array(scale)).tocsr()
        self.eigenvalues_, vectors = largest_eigenvectors(graph, min(self.n_components, N))
        power = self.eigenvalues_.clip(0.0) ** (self.steps - 1)
        found = vectors * (scale * np.sqrt(N))[:, None] * power
        spare = self.n_components - found.shape[1]
        return np.pad(found, ((0, 0), (0, spare))).astype(rows.dtype)

    def _finish(self, means: np.ndarray) -> np.ndarray:
        return unit_rows(means)

    @property
    def _n_features_out(self) -> int:
        return self._values.shape[1]


def largest_eigenvectors(graph: sp.csr_array, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k largest eigenvalues of a normalised graph, falling, and their eigenvectors.

    A graph in several parts has the eigenvalue 1 several times, some of which Lanczos' method
    misses. So a block of vectors is multiplied by a polynomial of the graph that is small between
    -1 and the least eigenvalue of the block (Chebyshev's), until all k are eigenvectors.
    """
    N = graph.shape[0]
    width = k + max(8, k // 10)
    if width * DENSE >= N:
        values, vectors = np.linalg.eigh(graph.toarray())
        return values[::-1][:k].copy(), _signed(vectors[:, ::-1][:, :k])
    Q = np.random.default_rng(0).standard_normal((N, width))
    least = 0.5
    for _ in range(MOST_FILTERS):
        Q = np.linalg.qr(_filtered(graph, Q, least))[0]
        image = graph @ Q
        values, rotation = np.linalg.eigh(Q.T @ image)
        values, rotation = values[::-1], rotation[:, ::-1]
        Q, image = Q @ rotation, image @ rotation
        error = np.linalg.norm(image[:, :k] - Q[:, :k] * values[:k], axis=0).max()
        if error < TOLERANCE:
            break
        least = max(values[-1], 0.0)
    return values[:k].copy(), _signed(Q[:, :k])


def _filtered(graph: sp.csr_array, Q: np.ndarray, least: float) -> np.ndarray:
    """Return a Chebyshev polynomial of the graph, of the interval from -1 to `least`, times Q."""
    centre, radius = (least - 1.0) / 2.0, (least + 1.0) / 2.0
    # A polynomial of 1, by which the largest are divided lest they overflow.
    growth = np.exp(np.arccosh((1.0 - centre) / radius))
    before, now = Q, (graph @ Q - centre * Q) / (radius * growth)
    for _ in range(DEGREE - 1):
        step = (graph @ now - centre * now) * (2.0 / (radius * growth))
        before, now = now, step - before / growth**2
    return now


def _signed(vectors: np.ndarray) -> np.ndarray:
    """Return the vectors with the signs that make their largest entries positive."""
    largest = np.abs(vectors).argmax(0)
    return vectors * np.sign(vectors[largest, np.arange(vectors.shape[1])])
