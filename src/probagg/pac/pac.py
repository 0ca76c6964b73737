"""PAC as a scikit-learn estimator (section 3.3 of the paper)."""

from dataclasses import fields, replace
from functools import partial
from numbers import Integral
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import check_is_fitted

from probagg.aggregation import Array
from probagg.arrays import is_tensor, like, numpy_dtype, to_numpy
from probagg.errors import ClusteringWarning, InputError, reading, warn_user
from probagg.estimators import (
    check_n_samples,
    check_parameters,
    describe_estimator,
    draw_seed,
    rebuild_estimator,
)
from probagg.known import Groups, check_known_labels
from probagg.pac.advice import advise, uneven_scales
from probagg.pac.assignment import MANY, labels_of_rows
from probagg.pac.clusters import Clusters, LinearClusters, clusters_at, ward_linkage
from probagg.pac.dask import is_dask
from probagg.pac.fixed_rows import keep_known, without_known
from probagg.pac.inputs import (
    CONSTRAINTS,
    RowSource,
    check_some_weights,
    check_streamable,
    check_weights,
    float_type,
    in_memory,
    join_groups,
    keeps_probabilities,
    map_rows,
    open_rows,
    to_solve,
)
from probagg.pac.rows import Metric
from probagg.pac.solver import Parameters, solve
from probagg.pac.stream import Stream, check_continues
from probagg.storage import RESTORE, read_safetensors, write_safetensors

FORMAT = "probagg.pac/1"
_SAVED = ("m_", "critical_m_", "objective_", "n_iter_", "n_features_in_")


class PAC(TransformerMixin, ClusterMixin, ClassNamePrefixFeaturesOutMixin, BaseEstimator):
    """Probability aggregation clustering: soft clusters without centres to initialise.

    The probabilities of each sample are computed from those of all others and its distances to
    them (Eq. 8), one sample after the other, from a near-uniform start until they converge
    (Algorithm 1). With squared Euclidean and cosine distances a sweep over the data costs O(NKD),
    like an iteration of k-means.

    Parameters
    ----------
    n_clusters : int, default=8
        K, the number of clusters. :func:`probagg.select_n_clusters` chooses one.
    m : float > 1 or "auto", default=1.03
        The exponent that controls how soft assignments are: the closer m is to 1, the harder. At or
        above `critical_m_` no cluster can form. "auto" is 1.03 or, if that is less, the value
        half-way between 1 and `critical_m_`.
    metric : str or callable, default="sqeuclidean"
        "sqeuclidean" and "cosine" take time and memory linear in N. "precomputed" and every other
        metric of :func:`sklearn.metrics.pairwise_distances` keep N^2 distances.
    balance : float in [0, 2], default=1.0
        The exponent of a cluster's mass (the sum of its probabilities) in its score. 1 is the
        paper's, which prefers clusters of equal size; 0 has no such preference; 2 makes sizes more
        even. If groups may have very different sizes, use :class:`probagg.GraphPAC`.
    init : {"auto", "uniform", "annealed"} or array (n_samples, n_clusters), default="auto"
        The start of P. "uniform" is the paper's near-uniform noise; an array gives probabilities.
        "annealed" first clusters at twice m - 1, which often ends in a lower objective. (It uses at
        most nine tenths of the way to `critical_m_`, and is skipped if m is beyond that.) "auto" is
        "uniform" for few clusters and samples. From K = 32 and n_samples = 2^16 / K / (m - 1) on,
        it starts from clusters of clusters of a sample, swept at a third of m - 1; from n_samples =
        4 max(50,000, 200 K) on, rows are clustered out of core (see `fit`). The sweeps of a start
        are limited by `max_iter` too, but not counted in `n_iter_`.
    block_size : int or "auto", default="auto"
        The number of rows updated at once. 1 is exactly Algorithm 1. "auto" is a quarter of the
        mean cluster size, or N (m - 1) if that is less, which converges to the same solutions.
    shuffle : bool, default=True
        Whether to visit samples in random order instead of the order of X.
    max_iter : int, default=100
        The maximum number of sweeps.
    tol : float, default=1e-3
        Stop when a sweep changes P by less than `tol` times P's distance from uniform (0 to 1). The
        change is the mean over samples of the sum of absolute differences.
    n_init : int, default=1
        The number of runs from different starts; the one with the lowest objective is kept.
    aggregate : {"p", "p_m"}, default="p"
        What the score sums: p (Eq. 8), or p^m, which makes each update an exact descent step.
    forgetting : float in (0, 1], default=1.0
        The factor by which each call of `partial_fit` multiplies the weight of all earlier rows. 1
        forgets nothing; at 0.9 the last 10 chunks have two thirds of the weight. `fit` ignores it.
    checkpoint : path or None, default=None
        A file in which a fit out of core (see `fit`) saves its state after each sweep. If it is
        interrupted, the same call resumes it, with the same result. The file is removed at the end.
    device : str or None, default=None
        Where the rows of arrays and files are computed by torch: "cuda", "cuda:1", "cpu", or "auto"
        for a GPU if there is one. Rows are copied there once, or block by block in each sweep where
        they do not fit; results are NumPy arrays. By default NumPy computes them, and a tensor is
        computed on its own device. Linear metrics only; `partial_fit` ignores it.
    random_state : int, RandomState instance or None, default=None
        Determines the start and the order of samples.
    verbose : int, default=0
        1 logs each run, 2 each sweep, to the logger "probagg".

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int64
        The most probable cluster of each sample (of the last chunk, after `partial_fit`).
    probabilities_ : ndarray or CSR array of shape (n_samples, n_clusters)
        The probability P of each of these samples in each cluster. A CSR array of the clusters near
        each sample, or not kept, if it is large; see `fit`.
    objective_ : float
        J_pac = sum_ij d_ij sum_k p_ik p_jk (Eq. 1). With `balance`, the term of each cluster is
        multiplied by mass^(balance - 1). With `aggregate="p_m"`, p^m replaces p. After
        `partial_fit` it counts all rows, with the probabilities that they were assigned.
    objective_history_ : list of float
        The objective after each sweep of `fit`.
    n_iter_ : int
        The number of sweeps of `fit`, or of chunks since `partial_fit` was first called.
    critical_m_ : float
        The m at and above which uniform probabilities are stable.
    m_ : float
        The m used.
    moments_ : Moments
        Mass, first and second moments of the clusters (linear metrics only). With `balance=1`,
        `aggregate(X, moments_, metric)` is `transform(X)`.
    cluster_means_, cluster_centers_ : ndarray of shape (n_clusters, n_features)
        First moments divided by mass, in the units of X (linear metrics only). `cluster_centers_`
        is for code written for KMeans: rows are not assigned to the nearest of these means.
    linkage_ : ndarray of shape (n_clusters - 1, 4)
        The tree by which clusters merge, in SciPy's format (linear metrics only); see `labels_at`.
    n_features_in_ : int
        The number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of the features, where X had any.

    Examples
    --------
    >>> import numpy as np
    >>> from probagg import PAC
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 9.0], [9.0, 8.0]])
    >>> pac = PAC(n_clusters=2, random_state=0).fit(X)
    >>> bool(pac.labels_[0] == pac.labels_[1] != pac.labels_[2])
    True
    >>> pac.predict([[8.0, 8.0]]) == pac.labels_[2:3]
    array([ True])

    Two of the rows are known to be in cluster 1 and in cluster 0:

    >>> pac.fit(X, known_labels=[1, -1, 0, -1]).labels_
    array([1, 1, 0, 0])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = CONSTRAINTS

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        m: float | str = 1.03,
        metric: Metric = "sqeuclidean",
        balance: float = 1.0,
        init: Any = "auto",
        block_size: int | str = "auto",
        shuffle: bool = True,
        max_iter: int = 100,
        tol: float = 1e-3,
        n_init: int = 1,
        aggregate: str = "p",
        forgetting: float = 1.0,
        checkpoint: str | PathLike[str] | None = None,
        device: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.m = m
        self.metric = metric
        self.balance = balance
        self.init = init
        self.block_size = block_size
        self.shuffle = shuffle
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.aggregate = aggregate
        self.forgetting = forgetting
        self.checkpoint = checkpoint
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        known_labels: Any = None,
        groups: Any = None,
    ) -> Self:
        """Cluster the rows of X, or the samples whose distances X holds (`metric="precomputed"`).

        Scale columns of different units first: a warning says so if their standard deviations
        differ by a factor of more than 100.

        `known_labels` has the cluster of each sample where it is known, and -1 elsewhere: integers,
        a masked array, or a categorical column, whose codes are used. These samples keep their
        cluster, so that cluster k is class k, and pull others: each counts as up to ten. Further
        clusters are new ones. Samples with the same number in `groups` (-1 for none) are in one
        cluster: they count as one sample at their mean, with their weight. Groups are for linear
        metrics and rows in memory.

        A sample of weight w counts as w samples in every score. Results have the type of X: those
        of a torch tensor are tensors on its device, those of a Dask array or DataFrame are lazy.

        X is an array, a SciPy sparse matrix, a DataFrame of numbers, a torch tensor, a Dask array,
        a memory map, the path of a .npy, .parquet, .arrow or .feather file, or a table or file of
        pyarrow. Large arrays, files, tensors (from 4 max(50,000, 200 K) rows) and Dask arrays (from
        a quarter of that) are clustered *out of core*: PAC clusters a sample in memory; sweeps over
        all rows then keep about 16 times K (n_features + 2) numbers instead of P.
        """
        check_parameters(self)
        rows = open_rows(self, X, reset=True, device=self.device)
        check_n_samples(rows.shape[0], int(self.n_clusters))
        weights = check_some_weights(rows, sample_weight)
        names = getattr(self, "feature_names_in_", None)
        if (uneven := uneven_scales(rows, self.metric, names)) is not None:
            warn_user(uneven, ClusteringWarning)
        known = check_known_labels(known_labels, rows.shape[0], int(self.n_clusters))
        together = Groups.of(groups, rows.shape[0])
        if together is not None:
            rows, weights = join_groups(rows, weights, self.metric, together)
            known = together.known(known)
            check_n_samples(rows.shape[0], int(self.n_clusters))
        free = without_known(weights, known, rows)
        data = to_solve(rows, free, self.metric, int(self.n_clusters))
        solution = solve(data, self._parameters(), weights, known)
        self._stream: Stream | None = None  # a stream before this fit is forgotten
        self._set_clusters(solution.clusters.like(rows))
        self.objective_history_ = solution.history
        self.objective_ = solution.history[-1]
        self.n_iter_ = len(solution.history)
        self._keep(rows, solution.P if is_tensor(rows) else to_numpy(solution.P), known)
        if isinstance(self._P, np.ndarray):
            solution = replace(solution, P=self._P)
        if together is not None:
            self._repeat(together.sample)
        for problem, kind in advise(solution, data):
            warn_user(problem, kind)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, known_labels: Any = None
    ) -> Self:
        """Add a chunk of a stream of rows to the clusters, in memory that does not grow.

        Each row is assigned and added to the moments once. Rows may come in any order: sweeps over
        a random sample of the stream (5,000 rows, or 100 per cluster if that is more) correct the
        clusters when their masses move or half of the weight is new. A chunk may have a single row;
        clusters form once K rows have been seen. After `fit` or `load`, the stream continues with
        the fitted clusters, and the sample corrects them once the stream has four times their
        weight. Linear metrics only; tensors are computed by NumPy.
        """
        check_parameters(self)
        is_fitted = self.__sklearn_is_fitted__()
        check_streamable(self.metric, self.init)
        stream = getattr(self, "_stream", None)
        parameters = self._parameters()
        rows = open_rows(self, X, reset=stream is None and not is_fitted)
        chunk = in_memory(rows)
        weights = check_weights(chunk, sample_weight)
        known = check_known_labels(known_labels, chunk.shape[0], int(self.n_clusters))
        fitted = check_continues(self._clusters, parameters) if is_fitted else None
        if stream is None:
            seed = draw_seed(self.random_state)
            stream = Stream(int(self.n_clusters), np.random.default_rng(seed))
            if fitted is not None:
                stream.start_from(fitted)
            self._stream = stream
        found = stream.add(chunk, weights, parameters, self.forgetting, known)
        if stream.clusters is not None:
            self._set_clusters(stream.clusters)
            self.objective_, self.n_iter_ = stream.clusters.objective, stream.n_chunks
            self._keep(rows, self._probabilities(rows), known)
        for problem in found:
            warn_user(problem, ConvergenceWarning)
        return self

    def _parameters(self) -> Parameters:
        values = {field.name: getattr(self, field.name) for field in fields(Parameters)}
        return Parameters(**values | {"n_clusters": int(self.n_clusters)})

    def _set_clusters(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self.m_, self.critical_m_ = clusters.update.m, clusters.critical_m
        self._P, self._P_shape = None, (0, 0)
        if isinstance(clusters, LinearClusters):
            self.moments_, self.cluster_means_ = clusters.moments, clusters.means
        elif hasattr(self, "moments_"):  # of an earlier fit
            del self.moments_, self.cluster_means_

    def _keep(self, rows: RowSource, P: Array | None, known: np.ndarray | None = None) -> None:
        """Set `labels_`, and `probabilities_`: dense where that is not too large, or CSR."""
        K, found = int(self.n_clusters), self._clusters
        if keeps_probabilities(rows, K):
            P = self._probabilities(rows) if P is None else P.toarray() if sp.issparse(P) else P
        elif P is None and K >= MANY and isinstance(rows, np.ndarray | sp.csr_array):
            assert isinstance(found, LinearClusters)
            P = found.nearest(rows)
        P = keep_known(P, known)
        self._P, self._P_shape = P, (rows.shape[0], K)
        if P is None or is_dask(rows):
            self.labels_ = keep_known(self._labels(rows), known)
        else:
            self.labels_ = labels_of_rows(P)

    def _repeat(self, samples: np.ndarray) -> None:
        """Set `labels_` and `probabilities_` of rows from those of the samples they are part of."""
        self.labels_ = self.labels_[samples]
        self._P = None if self._P is None else self._P[samples]
        self._P_shape = (len(samples), int(self.n_clusters))

    def _probabilities(self, rows: RowSource) -> Array:
        found = self._clusters
        return map_rows(rows, found.probabilities, found.numbers_per_row, width=found.n_clusters)

    def _labels(self, rows: RowSource) -> Array:
        found = self._clusters
        return map_rows(rows, found.labels, found.numbers_per_row, dtype=np.int64)

    @property
    def probabilities_(self) -> Any:
        """The probability P of each sample in each cluster, (n_samples, n_clusters)."""
        N, K = getattr(self, "_P_shape", (0, 0))
        if not N:
            raise AttributeError(
                "This PAC has not been fitted, or was loaded from a file, which has no rows. Call "
                "fit or partial_fit first; a loaded PAC has predict_proba."
            )
        if self._P is None:
            raise AttributeError(
                f"probabilities_ of {N:,} rows and {K:,} clusters are not kept: they would take "
                f"{4 * N * K / 1e9:.1f} GB. Use labels_, predict_top(X, 3) for the most probable "
                "clusters, or predict_proba on some rows."
            )
        return self._P

    @property
    def cluster_centers_(self) -> Any:
        """`cluster_means_`, by KMeans' name."""
        return self.cluster_means_

    @property
    def linkage_(self) -> np.ndarray:
        """The tree by which clusters merge (Ward's, of their moments), in SciPy's format.

        `scipy.cluster.hierarchy.dendrogram(pac.linkage_)` draws it. Linear metrics only.
        """
        if not isinstance(getattr(self, "_clusters", None), LinearClusters):
            raise AttributeError(
                "linkage_ is there once PAC is fitted, and for the linear metrics 'sqeuclidean' "
                "and 'cosine' only, whose clusters have moments."
            )
        return ward_linkage(to_numpy(self.cluster_means_), to_numpy(self.moments_.mass))

    def labels_at(self, n: int, X: Any = None) -> Any:
        """Return the clusters of rows (or of the fitted ones) once merged to n by `linkage_`.

        Levels are nested: a row is where the cluster of its label is.
        """
        groups = clusters_at(self.linkage_, n)
        labels = self.labels_ if X is None else self.predict(X)
        if is_dask(labels):
            return labels.map_blocks(groups.__getitem__)
        return like(groups, labels)[labels]

    def probabilities_at(self, n: int, X: Any = None) -> Any:
        """Return P of rows (or of the fitted ones) once clusters are merged to n: sums of P."""
        groups = clusters_at(self.linkage_, n)
        P = self.probabilities_ if X is None else self.predict_proba(X)
        return P @ like(np.eye(n, dtype=numpy_dtype(P))[groups], P)

    def _place_clusters(self, numbers: np.ndarray, n_clusters: int) -> None:
        """Give the clusters other numbers below `n_clusters`; nothing is assigned to the rest."""
        assert isinstance(self._clusters, LinearClusters)
        self.n_clusters = n_clusters
        self._set_clusters(self._clusters.placed(numbers, n_clusters))

    def _check_fitted(self) -> None:
        stream, message = getattr(self, "_stream", None), None
        if stream is not None:
            message = (
                f"This %(name)s has seen {stream.sample.n_rows} rows of a stream; clusters form "
                f"after n_clusters={self.n_clusters}. Call partial_fit with more rows."
            )
        check_is_fitted(self, msg=message)

    def _open(self, X: Any) -> RowSource:
        self._check_fitted()
        return open_rows(self, X, reset=False, device=self.device)

    def predict_proba(self, X: Any) -> Any:
        """Return the membership of each row in each cluster, not how likely the cluster is right.

        Memberships add up to 1. m determines how close to 1 the largest is; at the default it is
        for most rows. Rows do not affect each other.
        """
        return self._probabilities(self._open(X))

    def predict(self, X: Any) -> Any:
        """Return the most probable cluster of each row, as int64."""
        return self._labels(self._open(X))

    def predict_top(self, X: Any, k: int = 3) -> tuple[Any, Any]:
        """Return the `k` most probable clusters of each row, and their probabilities.

        Both are of shape (n_samples, k), most probable first. All K probabilities are in memory for
        a few rows at a time only, which allows thousands of clusters.
        """
        rows, fitted = self._open(X), self._clusters
        if not isinstance(k, Integral) or not 1 <= k <= fitted.n_clusters:
            raise InputError(
                f"k is {k}, but a number from 1 to the {fitted.n_clusters} clusters is needed."
            )
        top, width = partial(fitted.top, k=int(k)), 2 * int(k)
        found = map_rows(rows, top, fitted.numbers_per_row, width=width, dtype=np.float64)
        clusters, P = found[:, :k], found[:, k:]
        if is_tensor(found):
            return clusters.long(), P.to(float_type(rows))
        return clusters.astype(np.int64), P.astype(float_type(rows))

    def transform(self, X: Any) -> Any:
        """Return scores (n_samples, n_clusters): weighted sums of distances to the clusters."""
        rows, found = self._open(X), self._clusters
        return map_rows(rows, found.scores, found.numbers_per_row, width=found.n_clusters)

    def score_samples(self, X: Any) -> Any:
        """Return how typical each row is of its cluster: -1 on average, lower for outliers.

        It is minus the mean distance of the row to the samples of its most probable cluster, over
        their mean distance from each other, so clusters of different width compare. Linear metrics
        only.
        """
        rows, found = self._open(X), self._clusters
        if not isinstance(found, LinearClusters):
            raise InputError(
                f"score_samples needs metric='sqeuclidean' or 'cosine', but metric={self.metric!r}."
            )
        return map_rows(rows, found.typicality, found.numbers_per_row)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return minus the objective per sample, for these rows and the fitted clusters.

        This score cannot choose `n_clusters`, `m` or `balance` (in `GridSearchCV`): it rises with
        every further cluster, and each m and balance has an objective of its own. Use
        :func:`probagg.select_n_clusters` and m="auto".
        """
        rows, found = self._open(X), self._clusters
        weights = check_some_weights(rows, sample_weight)
        J = map_rows(rows, found.objectives, found.numbers_per_row, dtype=np.float64)
        return -float(np.average(np.asarray(to_numpy(J)), weights=to_numpy(weights)))

    def save(self, path: str | PathLike[str]) -> None:
        """Write what `predict` needs as one safetensors file, without pickle.

        For the linear metrics that is the K moments, a few kilobytes; other metrics add the
        training rows they compare with.
        """
        write_safetensors(path, FORMAT, *self._to_arrays())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Return a PAC that can predict, from a file that `save` wrote."""
        arrays, description = read_safetensors(path, FORMAT)
        with reading(path, RESTORE):
            return cls._of_arrays(arrays, description)

    def _to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the arrays to save, and parameters and learned attributes."""
        self._check_fitted()
        changed: dict[str, Any] = {"checkpoint": None, "device": None}
        changed |= {} if isinstance(self.init, str) else {"init": "uniform"}
        return self._clusters.to_arrays(), describe_estimator(self, _SAVED, **changed)

    @classmethod
    def _of_arrays(cls, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> Self:
        """Return what `_to_arrays` describes; raise ValueError where it is damaged."""
        clusters = Clusters.restored(arrays, description)
        pac = rebuild_estimator(cls, description, _SAVED)
        pac._validate_params()
        pac._set_clusters(clusters)
        shape = clusters.probabilities(clusters.example).shape
        if (clusters.example.shape[1], *shape) != (pac.n_features_in_, 1, pac.n_clusters):
            raise ValueError("its arrays are not of the size that it states")
        return pac

    @property
    def _n_features_out(self) -> int:
        return self._clusters.n_clusters

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_clusters")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags()  # scikit-learn expects them with predict_proba
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
