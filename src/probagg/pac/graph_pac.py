"""PAC whose clusters follow the graph of nearest rows, as a scikit-learn estimator."""

import warnings
from numbers import Integral
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import ClassifierTags
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from probagg.aggregation import LINEAR_METRICS, Array
from probagg.arrays import UNKNOWN, is_tensor, to_numpy
from probagg.environment import check_memory
from probagg.errors import ClusteringWarning, reading
from probagg.estimators import check_parameters, draw_seed, labels_of
from probagg.known import check_known_labels, with_known
from probagg.neighbours.smoothing import PER_CLUSTER, SAMPLE, Smoothing
from probagg.pac.advice import FORCED_SIZES
from probagg.pac.inputs import CONSTRAINTS, ROWS, check_sparse, explained
from probagg.pac.pac import PAC
from probagg.progress import Progress
from probagg.storage import RESTORE, read_safetensors, write_safetensors

FORMAT = "probagg.graph-pac/1"
_OF_PAC = ("n_clusters", "m", "metric", "balance", "n_init", "random_state", "verbose")


class GraphPAC(ClusterMixin, BaseEstimator):
    """PAC for clusters of any shape: what `probagg.cluster` does on a matrix.

    PAC's clusters are compact. Here they are smoothed over the graph of the 20 nearest rows, and
    where groups have other shapes, small parts of the rows are joined along the graph instead. The
    share of neighbours in one cluster decides, without labels; `reason_` says what was taken. A new
    row has the mean probabilities of its nearest fitted rows.

    The graph is that of at most 10,000 random rows, which the estimator keeps, and which a saved
    one contains. With fewer than 20 rows per cluster, PAC's clusters stay as they are.

    Parameters
    ----------
    n_clusters : int, default=8
        K, the number of clusters. :func:`probagg.select_n_clusters` chooses one.
    m : float > 1 or "auto", default=1.03
        PAC's exponent.
    metric : {"sqeuclidean", "cosine"}, default="sqeuclidean"
        What is near, and PAC's distance.
    balance : float in [0, 2], default=1.0
        How strongly clusters of equal size are preferred, by PAC and in the choice between its
        clusters and others. A warning says where half of it would lead to other clusters.
    n_init : int, default=1
        The number of PAC's starts.
    random_state : int, RandomState instance or None, default=None
        Determines PAC's start, the rows of the graph and the parts.
    verbose : int, default=0
        PAC's: 1 logs each run, 2 each sweep.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int64
        The most probable cluster of each row.
    probabilities_ : ndarray of shape (n_samples, n_clusters)
        The probability of each row in each cluster, in float32 where they are smoothed.
    reason_ : str
        Which clusters were taken, and why.
    pac_ : PAC
        The fitted PAC before smoothing. Its clusters have other members, but the same numbers where
        `reason_` begins with "PAC's clusters".
    smoothing_ : Smoothing or None
        What assigns rows; None where PAC's clusters stayed as they are.
    n_features_in_ : int
        The number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of the features, where X had any.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from probagg import PAC, GraphPAC, clustering_accuracy
    >>> X, y = load_digits(return_X_y=True)
    >>> for model in PAC(10, random_state=0), GraphPAC(10, random_state=0):
    ...     print(round(clustering_accuracy(y, model.fit_predict(X)), 2))
    0.78
    0.9
    >>> model.reason_
    "joined parts: 96.3 % of neighbours share a cluster, in PAC's 94.3 %"
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        name: CONSTRAINTS[name] for name in _OF_PAC
    } | {"metric": [StrOptions(set(LINEAR_METRICS))]}

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        m: float | str = 1.03,
        metric: str = "sqeuclidean",
        balance: float = 1.0,
        n_init: int = 1,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.m = m
        self.metric = metric
        self.balance = balance
        self.n_init = n_init
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        known_labels: Any = None,
        *,
        progress: Progress | None = None,
    ) -> Self:
        """Cluster the rows of X: an array, a SciPy sparse matrix or a DataFrame of numbers.

        `known_labels` are the clusters of rows that keep them, as in `PAC.fit`; neighbours follow.
        Rows have no weights: the graph counts each once. `progress` is called with the number of
        rows assigned and of all, where there are more than 10,000.
        """
        return self._fit(X, known_labels, progress)

    def _fit(
        self,
        X: Any,
        known_labels: Any,
        progress: Progress | None = None,
        *,
        joined: bool | None = None,
    ) -> Self:
        """Fit; `joined` says whether the clusters of an earlier fit were joined parts."""
        check_parameters(self)
        rows, is_seed = self._checked(X, reset=True), isinstance(self.random_state, Integral)
        seed = self.random_state if is_seed else draw_seed(self.random_state)
        known = check_known_labels(known_labels, rows.shape[0], int(self.n_clusters))
        n_samples, n_features = rows.shape
        if sp.issparse(rows):
            needed, what = 24.0 * min(n_samples, SAMPLE) * n_features, "a graph of dense rows"
            remedy = f"Use fewer columns than {n_features:,}, for instance those of TruncatedSVD."
            check_memory(needed, what, remedy)
        with warnings.catch_warnings():
            # Sizes that differ are a matter of the graph here.
            warnings.filterwarnings("ignore", FORCED_SIZES, ClusteringWarning)
            pac = PAC(**self.get_params() | {"random_state": seed})
            given = to_numpy(X) if is_tensor(X) else X
            self.pac_ = pac.fit(given, known_labels=known)
        P = getattr(self.pac_, "probabilities_", None) if known is None else None
        P = self.pac_.predict_proba(rows) if P is None else P
        self.smoothing_: Smoothing | None = None
        if n_samples >= PER_CLUSTER * int(self.n_clusters):
            self.smoothing_, self.probabilities_ = Smoothing.fit(
                rows,
                P,
                seed,
                progress,
                metric=self.metric,
                balance=float(self.balance),
                known=known,
                joined=joined,
            )
        else:
            self.probabilities_ = with_known(P, known)
        self.labels_ = labels_of(self.probabilities_)
        return self

    @property
    def reason_(self) -> str:
        """Which clusters were taken, and why."""
        check_is_fitted(self)
        if self.smoothing_ is None:
            return f"PAC's clusters, not smoothed: fewer than {PER_CLUSTER} rows per cluster"
        return self.smoothing_.reason

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the mean probabilities of the nearest fitted rows, (n_samples, n_clusters).

        Their mean confidence is that of PAC or, for joined parts, the share of neighbours in one
        cluster; it is not how likely the cluster is right.
        """
        check_is_fitted(self)
        rows = self._checked(X, reset=False)
        return (self.pac_ if self.smoothing_ is None else self.smoothing_).predict_proba(rows)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable cluster of each row, as int64."""
        return labels_of(self.predict_proba(X))

    def _place_clusters(self, numbers: np.ndarray, n_clusters: int) -> None:
        """Give the clusters other numbers below `n_clusters`; nothing is assigned to the rest."""
        self.n_clusters = n_clusters
        self.pac_._place_clusters(numbers, n_clusters)
        if self.smoothing_ is not None:
            self.smoothing_ = self.smoothing_.placed(numbers, n_clusters)

    def _checked(self, X: Any, *, reset: bool) -> Array:
        with explained(X):
            rows = validate_data(self, to_numpy(X) if is_tensor(X) else X, reset=reset, **ROWS)
        return check_sparse(rows, self.metric)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted estimator as one safetensors file, without pickle.

        It contains the rows of the graph: share it only where these may be seen.
        """
        check_is_fitted(self)
        arrays, description = self.pac_._to_arrays()
        if not isinstance(self.random_state, Integral):
            description["params"]["random_state"] = None
        if self.smoothing_ is not None:
            more, description["smoothing"] = self.smoothing_.to_arrays()
            arrays |= {f"smoothing.{name}": array for name, array in more.items()}
        write_safetensors(path, FORMAT, arrays, description)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Return a GraphPAC that can predict, from a file that `save` wrote."""
        arrays, description = read_safetensors(path, FORMAT)
        with reading(path, RESTORE):
            own = {name: array for name, array in arrays.items() if "." not in name}
            pac = PAC._of_arrays(own, description)
            found = cls(**{name: getattr(pac, name) for name in _OF_PAC})
            found._validate_params()
            found.pac_, found.smoothing_ = pac, None
            found.n_features_in_ = pac.n_features_in_
            if hasattr(pac, "feature_names_in_"):
                found.feature_names_in_ = pac.feature_names_in_
            if "smoothing" in description:
                more = {name: arrays[f"smoothing.{name}"] for name in ("rows", "P", "factor")}
                found.smoothing_ = Smoothing.of_arrays(more, description["smoothing"])
                shape = found.smoothing_.n_features_in_, found.smoothing_.n_clusters
                if shape != (pac.n_features_in_, pac.n_clusters):
                    raise ValueError("its arrays are not of the size that it states")
        return found

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "smoothing_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags()  # scikit-learn expects them with predict_proba
        tags.input_tags.sparse = True
        return tags


def refit(
    model: PAC | GraphPAC, X: Any, known: np.ndarray, rows: np.ndarray, *, joined: bool = False
) -> np.ndarray:
    """Fit a model on some rows of X with known labels, and return P (N, K) of all rows.

    Numbers below K that no row is known to be in have no rows, here and in `predict`. GraphPAC's
    clusters are joined parts if those of an earlier fit were (`joined`). Others are PAC's, anchored
    by their own rows.
    """
    K = int(model.n_clusters)
    numbers = np.unique(known[rows][known[rows] != UNKNOWN])
    compact = np.where(known == UNKNOWN, UNKNOWN, np.searchsorted(numbers, known))[rows]
    model.n_clusters = len(numbers)
    if isinstance(model, GraphPAC):
        model._fit(X[rows], compact, joined=joined)
    else:
        model.fit(X[rows], known_labels=compact)
    P = np.zeros((X.shape[0], K), np.float64)
    P[np.ix_(rows, numbers)] = model.probabilities_
    others = np.setdiff1d(np.arange(X.shape[0]), rows)
    if len(others):
        P[np.ix_(others, numbers)] = model.predict_proba(X[others])
    if len(numbers) < K:
        model._place_clusters(numbers, K)
    return P
