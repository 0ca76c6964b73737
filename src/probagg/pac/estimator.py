"""PAC as a scikit-learn estimator (section 3.3 of the paper)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from numbers import Integral, Real
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
from sklearn.utils import ClassifierTags, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from probagg.aggregation import LINEAR_METRICS, Moments, critical_m_from_growth
from probagg.errors import InputError
from probagg.pac.advice import problems
from probagg.pac.model import (
    LinearModel,
    Model,
    PairwiseModel,
    check_distances,
    load_model,
    save_model,
    training_distances,
)
from probagg.pac.rows import Frame, LinearRows, PairwiseRows
from probagg.pac.sweeps import Blocks, Run, Update, given_start, near_uniform, read_out, run_sweeps
from probagg.progress import log_progress

SAMPLE_ROWS = 50_000  # of a large data set, swept first when init="auto"

_SAVED = ("m_", "critical_m_", "objective_", "n_iter_", "n_features_in_")


class PAC(TransformerMixin, ClusterMixin, ClassNamePrefixFeaturesOutMixin, BaseEstimator):
    """Probability aggregation clustering: soft clusters without centres to initialise.

    Each sample's probabilities follow from those of all others and its distances to them (Eq. 8),
    sample after sample, from a near-uniform start until they settle (Algorithm 1). For squared
    Euclidean and cosine distances a sweep over the data costs O(NKD), like an iteration of k-means.

    Parameters
    ----------
    n_clusters : int, default=8
        K, the number of clusters.
    m : float > 1 or "auto", default=1.03
        The weighting exponent. Closer to 1 is harder; at or above `critical_m_` nothing clusters.
        "auto" takes 1.03, or half-way to the critical value where that is less.
    metric : str or callable, default="sqeuclidean"
        "sqeuclidean" and "cosine" are linear in N. "precomputed" and every other metric of
        :func:`sklearn.metrics.pairwise_distances` keep N^2 distances.
    balance : float, default=1.0
        The exponent of a cluster's mass in its score. 1 is the paper's, which prefers clusters of
        equal size; 0 has no such preference.
    init : {"auto", "uniform", "annealed"} or array (n_samples, n_clusters), default="auto"
        Where P starts: "uniform" is the paper's near-uniform noise; an array gives probabilities.
        "annealed" sweeps the noise to clusters at twice m - 1 first (at most nine tenths of the way
        to `critical_m_`; not at all where m is beyond that). It often ends lower, not always.
        "auto" is "uniform", but above 200,000 samples the noise is swept to clusters on a random
        sample of 50,000 first (on max(50,000, 200 K), from four times that size on). A start's own
        sweeps are not in `n_iter_`, but held to `max_iter` as well.
    block_size : int or "auto", default="auto"
        Rows updated at once. 1 is Algorithm 1 to the letter; "auto" is a quarter of the mean
        cluster size or N (m - 1) if that is less, the largest that behaves the same.
    shuffle : bool, default=True
        Visit samples in random order instead of the order given.
    max_iter : int, default=100
        The most sweeps to make.
    tol : float, default=1e-3
        Stop when a sweep changes a sample's probabilities by less, in sum and on average; and by
        less than that times P's departure from uniform (0 to 1), as little moves near the start.
    n_init : int, default=1
        Runs from different starts; the one with the lowest objective is kept.
    aggregate : {"p", "p_m"}, default="p"
        What the score sums: p (Eq. 8), or p^m, which makes each update an exact descent step.
    random_state : int, RandomState instance or None, default=None
        Fixes start and order.
    verbose : int, default=0
        1 logs each run, 2 each sweep, to the logger "probagg".

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        The most probable cluster of each sample.
    probabilities_ : ndarray of shape (n_samples, n_clusters)
        P.
    objective_ : float
        J_pac = sum_ij d_ij sum_k p_ik p_jk (Eq. 1), each cluster times mass^(balance - 1), and with
        p^m for both p when `aggregate="p_m"`.
    objective_history_ : list of float
        It after each sweep.
    n_iter_ : int
        Sweeps made.
    critical_m_ : float
        The m at and above which uniform probabilities are stable.
    m_ : float
        The m used.
    moments_ : Moments
        Mass, first and second moments of the clusters (linear metrics only):
        `aggregate(X, moments_, metric)` is `transform(X)` at the paper's balance.
    cluster_means_ : ndarray of shape (n_clusters, n_features)
        First moments over mass, in the units of X (linear metrics only).
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

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
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "m": [Interval(Real, 1.0, None, closed="neither"), StrOptions({"auto"})],
        "metric": [str, callable],
        "balance": [Interval(Real, 0.0, 2.0, closed="both")],
        "init": [StrOptions({"auto", "uniform", "annealed"}), "array-like"],
        "block_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "shuffle": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "aggregate": [StrOptions({"p", "p_m"})],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        m: float | str = 1.03,
        metric: str | Callable[..., float] = "sqeuclidean",
        balance: float = 1.0,
        init: Any = "auto",
        block_size: int | str = "auto",
        shuffle: bool = True,
        max_iter: int = 100,
        tol: float = 1e-3,
        n_init: int = 1,
        aggregate: str = "p",
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
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Cluster the rows of X, or the samples whose distances X holds (`metric="precomputed"`).

        A sample of weight w counts as w samples in every score.
        """
        self._validate_params()
        X = self._validate_rows(X, reset=True)
        N, K = X.shape[0], self.n_clusters
        if N < K:
            raise InputError(
                f"n_samples={N} should be >= n_clusters={K}. Pass more samples or ask for fewer "
                "clusters."
            )
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, X, dtype=X.dtype, ensure_non_negative=True
            )
            if not sample_weight.any():
                raise InputError(
                    "Every sample_weight is zero. Give some samples a positive weight."
                )
        generator = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        rows = self._prepare(X, sample_weight, generator)
        self.critical_m_ = critical_m_from_growth(rows.growth(), self.aggregate)
        self.m_ = self._choose_m()
        self._update = Update(self.m_, self.aggregate, self.balance)

        best = run = self._sweep(rows, self._start(rows, generator), "run", self.m_)
        for _ in range(1, self.n_init if isinstance(self.init, str) else 1):
            run = self._sweep(rows, self._start(rows, generator), "run", self.m_)
            best = run if run.history[-1] < best.history[-1] else best
        if run is not best:
            rows.start(self._update.weigh(best.P.T, rows.sample_weight))
        if best.converged:  # so that `predict` agrees with `labels_`
            read_out(rows, best.P, self._update)
        self._conclude(X, rows, best)
        return self

    def _validate_rows(self, X: Any, reset: bool) -> Any:
        X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])
        if sp.issparse(X):
            if self.metric == "precomputed":
                raise InputError(
                    "metric='precomputed' needs every distance, and a sparse X leaves most out. "
                    "Pass a dense array: X.toarray()."
                )
            return sp.csr_array(X)
        return X

    def _prepare(self, X: Any, weights: Any, generator: np.random.Generator) -> Any:
        order = generator.permutation(X.shape[0]) if self.shuffle else None
        if self.metric in LINEAR_METRICS:
            return LinearRows(X, weights, order, Frame.of(X, self.metric))
        if self.metric == "precomputed":
            return PairwiseRows(check_distances(X), weights, order)
        return PairwiseRows(training_distances(X, self.metric), weights, order)

    def _choose_m(self) -> float:
        if self.m != "auto":
            return float(self.m)
        return max(min(1.03, (1.0 + self.critical_m_) / 2.0), 1.0 + 1e-6)

    def _start(self, rows: Any, generator: np.random.Generator) -> np.ndarray:
        """The P to sweep from: given, near-uniform, or swept from that: softly, or on a sample."""
        N, K, dtype = rows.X.shape[0], self.n_clusters, rows.X.dtype
        if not isinstance(self.init, str):
            return rows.arrange(given_start(self.init, N, K, dtype))
        size = max(SAMPLE_ROWS, 200 * K)
        if self.init == "auto" and isinstance(rows, LinearRows) and 4 * size <= N:
            sample = rows.sample(size, generator)
            noise = near_uniform(sample.X.shape[0], K, dtype, generator)
            self._sweep(sample, noise, "sample", self.m_)
            rows.sums = sample.sums
            P = rows.arrange(np.empty((N, K), dtype))
            read_out(rows, P, self._update)
            return P
        noise = rows.arrange(near_uniform(N, K, dtype, generator))
        soft = 1.0 + min(2.0 * (self.m_ - 1.0), 0.9 * (self.critical_m_ - 1.0))
        if self.init == "annealed" and soft > self.m_:
            return self._sweep(rows, noise, "annealing", soft).P
        return noise

    def _sweep(self, rows: Any, P: np.ndarray, name: str, m: float) -> Run:
        def report(n: int, J: float, change: float) -> None:
            message = "%s, sweep %d: J %.6g, change %.2g"
            log_progress(self.verbose >= 2, message, name, n, J * rows.unit, change)

        run = run_sweeps(
            rows,
            P,
            Update(m, self.aggregate, self.balance),
            Blocks.of(self.block_size, rows, self.n_clusters, m),
            max_iter=self.max_iter,
            tol=self.tol,
            stays_uniform=m >= self.critical_m_,
            report=report,
        )
        J = run.history[-1] * rows.unit
        log_progress(self.verbose >= 1, "%s: %d sweeps, J %.6g", name, len(run.history), J)
        return run

    def _conclude(self, X: Any, rows: Any, run: Run) -> None:
        if isinstance(rows, LinearRows):
            self._set_model(LinearModel(rows.frame, Moments.of_sums(rows.sums)))
        else:
            kept = None if self.metric == "precomputed" else X
            self._set_model(PairwiseModel(self.metric, rows.A, kept))
        self.probabilities_ = rows.restore(run.P)
        self.labels_ = self.probabilities_.argmax(1).astype(np.int32)
        self.objective_history_ = [J * rows.unit for J in run.history]
        self.objective_ = self.objective_history_[-1]
        self.n_iter_ = len(run.history)
        for problem in problems(
            run,
            self.labels_,
            n_clusters=self.n_clusters,
            m=self.m_,
            critical_m=self.critical_m_,
            max_iter=self.max_iter,
            tol=self.tol,
        ):
            warnings.warn(problem, ConvergenceWarning, stacklevel=3)

    def _set_model(self, model: Model) -> None:
        self._model = model
        if isinstance(model, LinearModel):
            self.moments_, self.cluster_means_ = model.user_moments, model.means
        elif hasattr(self, "moments_"):  # of an earlier fit
            del self.moments_, self.cluster_means_

    def _sums(self, X: Any) -> np.ndarray:
        """(K, n) sums of Eq. 8 for the rows of X, in the model's unit."""
        check_is_fitted(self)
        return np.ascontiguousarray(self._model.scores(self._validate_rows(X, reset=False)).T)

    def predict_proba(self, X: Any) -> np.ndarray:
        """P for the rows of X, from the fitted clusters alone: no row affects another's."""
        S = self._sums(X)
        return self._update.assign(S, self._model.mass, self._model.floor).T

    def predict(self, X: Any) -> np.ndarray:
        """The most probable cluster of each row."""
        return self.predict_proba(X).argmax(1).astype(np.int32)

    def transform(self, X: Any) -> np.ndarray:
        """Scores (n_samples, n_clusters): aggregated distances to the clusters, small is near."""
        S = self._sums(X).clip(0.0)
        return self._update.scale(S, self._model.mass).T * S.dtype.type(self._model.unit)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the objective per sample, of these rows against the fitted clusters."""
        P, S = self.predict_proba(X), self.transform(X)
        J = (self._update.weigh(P) * S).sum(1, dtype=np.float64)
        return -float(np.average(J, weights=sample_weight))

    def save(self, path: str | PathLike[str]) -> None:
        """Write what `predict` needs as one safetensors file, without pickle.

        For the linear metrics that is the K moments, a few kilobytes; other metrics add the
        training rows they compare with.
        """
        check_is_fitted(self)
        params = self.get_params()
        params |= {"init": "uniform"} if not isinstance(self.init, str) else {}
        params |= {"random_state": None} if not isinstance(self.random_state, Integral) else {}
        learned = {name: getattr(self, name) for name in _SAVED}
        if hasattr(self, "feature_names_in_"):
            learned["feature_names_in_"] = self.feature_names_in_.tolist()
        save_model(path, self._model, {"params": params, "learned": learned})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """A PAC that predicts, from a file that `save` wrote."""
        model, description = load_model(path)
        pac = cls(**description["params"])
        for name, value in description["learned"].items():
            setattr(pac, name, np.array(value, object) if name == "feature_names_in_" else value)
        pac._update = Update(pac.m_, pac.aggregate, pac.balance)
        pac._set_model(model)
        return pac

    @property
    def _n_features_out(self) -> int:
        return len(self._model.mass)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags()  # some of scikit-learn asks it of predict_proba
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
