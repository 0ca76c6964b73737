"""OPAHead: a classifier trained on given features by online probability aggregation alone."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_n_features, check_is_fitted, validate_data
from torch import Tensor, nn

from probagg.aggregation import LINEAR_METRICS, embed
from probagg.arrays import UNKNOWN, chunks
from probagg.devices import choose_device, one_torch_thread
from probagg.errors import ClusteringWarning, InputError, reading, warn_user
from probagg.estimators import (
    CONSTRAINTS,
    check_n_samples,
    check_parameters,
    describe_estimator,
    draw_seed,
    labels_of,
    rebuild_estimator,
)
from probagg.known import check_known_labels, with_known
from probagg.opa.diagnose import diagnose
from probagg.opa.losses import OPALoss
from probagg.pac.clusters import Clusters
from probagg.pac.inputs import explained
from probagg.pac.solver import Parameters, solve
from probagg.pac.tensors import check_tensor
from probagg.progress import log_progress
from probagg.storage import RESTORE, read_safetensors, write_safetensors

STARTS = 3  # runs of PAC, of which the one with the lowest objective is taken
REFINING = 0.1  # share of the learning rate after PAC's start: a full one leaves good clusters
CHUNK = 4096  # rows predicted at a time
FORMAT = "probagg.opa-head/1"
_SAVED = ("n_iter_", "n_features_in_")


class OPAHead(ClusterMixin, BaseEstimator):
    """Train a linear or multi-layer classifier on features by OPA, one mini-batch at a time.

    Each step computes targets from the probabilities and distances of the batch (Algorithm 2) and
    fits the classifier to them. X may be a memory map larger than memory, since probabilities are
    computed for one batch at a time. If the data fits in memory and you do not need a network,
    `PAC` is many times faster and as accurate.

    Parameters
    ----------
    n_clusters : int, default=8
        K, the number of clusters.
    m : float > 1, default=1.03
        The weighting exponent, as in `PAC`.
    metric : {"sqeuclidean", "cosine"}, default="sqeuclidean"
        The distance between features; "cosine" for the features of a network.
    balance : float in [0, 2], default=1.0
        As in `PAC`.
    init : {"pac", "random"}, default="pac"
        "pac" clusters some rows (4,096, or 50 per cluster if that is more) by `PAC`, fits the
        classifier to its probabilities in the first third of the epochs, and continues with OPA.
        "random" uses OPA alone.
    hidden : tuple of int, default=()
        Widths of hidden layers; without any, the classifier is linear.
    batch_size : int or "auto", default="auto"
        Rows per step. "auto" is 64 per cluster, at least 512, and at most a third of the data.
        Targets of small batches are noisy.
    max_epochs : int, default=100
        Passes over the data; the learning rate falls to zero along a cosine.
    learning_rate : float, default=0.08
        The learning rate of Adam, divided by the square root of the number of features. After a
        start from PAC's clusters, OPA uses a tenth of it.
    device : str, default="auto"
        A device of torch. "auto" is that of X if it is a tensor, else CUDA, MPS or the CPU.
    random_state : int, RandomState instance or None, default=None
        Determines initial weights and batches.
    verbose : int, default=0
        1 logs each tenth of the epochs to the logger "probagg".

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int64
        The most probable cluster of each sample; a tensor if X is one.
    network_ : torch.nn.Module
        The classifier, from standardised features to logits, on the CPU.
    diagnosis_ : Diagnosis
        The diagnosis of at most 4,096 rows after training.
    loss_history_ : list of float
        The mean loss of each epoch.
    n_iter_ : int
        The number of steps.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> head = OPAHead(10, max_epochs=30, random_state=0).fit(load_digits().data)
    >>> head.predict_proba(load_digits().data[:2]).shape
    (2, 10)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = CONSTRAINTS | {
        "metric": [StrOptions(set(LINEAR_METRICS))],
        "init": [StrOptions({"pac", "random"})],
        "hidden": [tuple, list],
        "batch_size": [Interval(Integral, 2, None, closed="left"), StrOptions({"auto"})],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0.0, None, closed="neither")],
        "device": [str, torch.device],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        m: float = 1.03,
        metric: str = "sqeuclidean",
        balance: float = 1.0,
        init: str = "pac",
        hidden: tuple[int, ...] = (),
        batch_size: int | str = "auto",
        max_epochs: int = 100,
        learning_rate: float = 0.08,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.m = m
        self.metric = metric
        self.balance = balance
        self.init = init
        self.hidden = hidden
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, known_labels: Any = None) -> Self:
        """Train on the rows of X; `y` is ignored.

        `known_labels` has the cluster of each row where it is known, and -1 elsewhere, as in
        `PAC.fit`: it is the row's target in every step, and its label.
        """
        check_parameters(self)
        if not all(isinstance(width, Integral) and width >= 1 for width in self.hidden):
            raise InputError(f"hidden is {self.hidden}, but widths of at least 1 are needed.")
        X = self._rows(X, reset=True)
        check_n_samples(len(X), self.n_clusters)
        known = check_known_labels(known_labels, len(X), self.n_clusters)
        seed = draw_seed(self.random_state)
        rng = np.random.default_rng(seed)
        size = min(len(X), max(4096, 50 * self.n_clusters))
        chosen = np.sort(rng.choice(len(X), size, replace=False))
        if known is not None:
            chosen = np.union1d(chosen, rng.permutation(np.flatnonzero(known != UNKNOWN))[:size])
        some = X[chosen]
        self._standard = Standard.of(some, self.metric)
        follows_x = isinstance(X, Tensor) and self.device == "auto"
        device = X.device if follows_x else choose_device(self.device)
        network = make_network(X.shape[1], self.hidden, self.n_clusters, seed).to(device)
        pac = Parameters(
            self.n_clusters, m=self.m, balance=self.balance, n_init=STARTS, random_state=seed
        )
        full = torch.autocast(device.type, enabled=False)
        with torch.enable_grad(), full, one_torch_thread():
            start = None
            if self.init == "pac":
                rows = self._standard(some).to(device)
                of_rows = None if known is None else known[chosen]
                start = solve(rows, pac, None, of_rows).clusters
            self._train(network, X, known, rng, device, start)
        self.network_ = network.eval().cpu()
        found = self.diagnosis_ = diagnose(
            self._standard(some),
            torch.as_tensor(self._proba(some)),
            self.m,
            metric="sqeuclidean",
            balance=self.balance,
            warn=False,
        )
        if found.advice:
            warn_user(f"{found.state}: {found.advice}", ClusteringWarning)
        self.labels_ = with_known(labels_of(self._proba(X)), known)
        return self

    def _train(
        self,
        network: nn.Module,
        X: np.ndarray,
        known: np.ndarray | None,
        rng: np.random.Generator,
        device: torch.device,
        start: Clusters | None,
    ) -> None:
        """Fit the network by Adam on random mini-batches, the learning rate falling to zero."""
        if self.batch_size == "auto":
            size = min(max(512, 64 * self.n_clusters), len(X) // 3)
        else:
            size = min(int(self.batch_size), len(X))
        size = max(size, min(2, len(X)))
        steps = max(1, len(X) // size)
        # Between standardised rows both metrics are squared distances.
        loss_of = OPALoss(self.m, metric="sqeuclidean", balance=self.balance)
        rate = self.learning_rate / X.shape[1] ** 0.5
        optimizer = torch.optim.Adam(network.parameters(), lr=rate)
        fitted = self.max_epochs // 3 if start is not None else 0  # epochs in which it is fitted

        def factor(step: int) -> float:
            part = REFINING if fitted and step >= fitted * steps else 1.0
            return part * 0.5 * (1.0 + math.cos(math.pi * step / (self.max_epochs * steps)))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        self.loss_history_: list[float] = []
        for epoch in range(1, self.max_epochs + 1):
            order, total = rng.permutation(len(X)), torch.zeros((), device=device)
            for step in range(steps):
                rows = np.sort(order[step * size : (step + 1) * size])  # in order, for memory maps
                batch = self._standard(X[rows]).to(device)
                labels = None if known is None else torch.as_tensor(known[rows], device=device)
                optimizer.zero_grad(set_to_none=True)
                if start is not None and epoch <= fitted:
                    Q = with_known(start.probabilities(batch), labels)
                    loss = F.cross_entropy(network(batch), Q)
                else:
                    loss = loss_of(batch, network(batch), known_labels=labels)
                loss.backward()
                optimizer.step()
                schedule.step()
                total += loss.detach()
            self.loss_history_.append(float(total) / steps)
            if epoch % max(1, self.max_epochs // 10) == 0:
                message = "OPAHead, epoch %d of %d: loss %.4f"
                log_progress(
                    self.verbose >= 1, message, epoch, self.max_epochs, self.loss_history_[-1]
                )
        self.n_iter_ = self.max_epochs * steps

    def _rows(self, X: Any, *, reset: bool) -> Any:
        """Return valid rows: an array, or a tensor on its own device."""
        if not isinstance(X, Tensor):
            with explained(X):
                return validate_data(self, X, reset=reset, dtype="numeric")
        X = check_tensor(X)
        _check_n_features(self, X, reset=reset)
        return X

    def _proba(self, X: Any) -> Any:
        device = X.device if isinstance(X, Tensor) else torch.device("cpu")
        network, slices = copy.deepcopy(self.network_).to(device), chunks(len(X), CHUNK)
        with torch.inference_mode(), torch.autocast(device.type, enabled=False):
            P = torch.cat([network(self._standard(X[rows])).softmax(1) for rows in slices])
        return P if isinstance(X, Tensor) else P.numpy()

    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each row in each cluster, as a tensor if X is one."""
        check_is_fitted(self)
        return self._proba(self._rows(X, reset=False))

    def predict(self, X: Any) -> Any:
        """Return the most probable cluster of each row, as int64."""
        return labels_of(self.predict_proba(X))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the network and its settings as one safetensors file, without pickle."""
        check_is_fitted(self)
        description = describe_estimator(
            self, _SAVED, device=str(self.device), hidden=list(self.hidden)
        )
        tensors = {name: tensor.numpy() for name, tensor in self.network_.state_dict().items()}
        tensors |= {"mean": self._standard.mean, "spread": np.atleast_1d(self._standard.spread)}
        write_safetensors(path, FORMAT, tensors, description)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Return an OPAHead that can predict, from a file that `save` wrote."""
        tensors, description = read_safetensors(path, FORMAT)
        with reading(path, RESTORE):
            if not all(np.isfinite(array).all() for array in tensors.values()):
                raise ValueError("some of its numbers are not finite")
            description["params"]["hidden"] = hidden = tuple(description["params"]["hidden"])
            head = rebuild_estimator(cls, description, _SAVED)
            head._validate_params()
            mean, spread = tensors.pop("mean"), tensors.pop("spread")
            if (mean.shape, spread.shape) != ((head.n_features_in_,), (1,)):
                raise ValueError("its arrays are not of the size that it states")
            head._standard = Standard(head.metric, mean, spread[0])
            with torch.device("meta"):  # no memory is taken before the sizes are compared
                network = make_network(head.n_features_in_, hidden, head.n_clusters)
            weights = {name: torch.from_numpy(array).float() for name, array in tensors.items()}
            network.load_state_dict(weights, assign=True)
            head.network_ = network.eval()
            head._proba(mean[None])
        return head


@dataclass(frozen=True)
class Standard:
    """Rows shifted and scaled together to a mean square of 1, for cosine at unit length first."""

    metric: str
    mean: np.ndarray
    spread: np.ndarray  # one number

    @classmethod
    def of(cls, X: Any, metric: str) -> Standard:
        """Return the shift and scale of these rows."""
        X = X.cpu().double().numpy() if isinstance(X, Tensor) else X
        rows = embed(X.astype(np.float64), metric)
        mean = rows.mean(0)
        rows = rows - mean
        largest = np.abs(rows).max() or 1.0  # so that no square overflows
        return cls(metric, mean, largest * np.sqrt(((rows / largest) ** 2).mean(keepdims=True)[0]))

    def __call__(self, X: Any) -> Tensor:
        if not isinstance(X, Tensor):
            rows = (embed(X.astype(np.float64), self.metric) - self.mean) / (self.spread or 1.0)
            return torch.tensor(rows, dtype=torch.float32)
        rows = embed(X.to(torch.promote_types(X.dtype, torch.float32)), self.metric)
        mean = torch.as_tensor(self.mean, dtype=rows.dtype, device=X.device)
        return ((rows - mean) / (self.spread.item() or 1.0)).float()


def make_network(
    n_features: int, hidden: Any, n_clusters: int, seed: int | None = None
) -> nn.Sequential:
    """Return linear layers with ReLU between them, whose weights depend on the seed alone.

    Without a seed they have no values. Nothing is drawn from torch's global generator.
    """
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise([n_features, *hidden, n_clusters])):
        layer = nn.utils.skip_init(nn.Linear, inputs, outputs, dtype=torch.float32)
        layers += [nn.ReLU(), layer] if i else [layer]
        if seed is not None:
            generator = torch.Generator().manual_seed(seed + i)
            for parameter in (layer.weight, layer.bias):
                nn.init.uniform_(parameter, -(inputs**-0.5), inputs**-0.5, generator=generator)
    return nn.Sequential(*layers)
