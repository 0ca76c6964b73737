"""OPAHead: a classifier trained on given features by online probability aggregation alone."""

from __future__ import annotations

from itertools import pairwise
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from probagg.aggregation import LINEAR_METRICS
from probagg.opa.diagnose import diagnose
from probagg.opa.losses import OPALoss
from probagg.runs import log_progress, read_safetensors, write_safetensors

FORMAT = "probagg.opa-head/1"
_SAVED = ("n_iter_", "n_features_in_")


class OPAHead(ClusterMixin, BaseEstimator):
    """Train a linear or multi-layer classifier on features by OPA, one mini-batch at a time.

    Each step takes targets from the batch's own probabilities and distances (Algorithm 2) and moves
    the classifier towards them. Unlike `PAC` it never holds all probabilities, so X may be a memory
    map larger than memory; the result is a network of a few layers. `PAC` is more accurate and
    faster where the data fits in memory.

    Parameters
    ----------
    n_clusters : int, default=8
        K, the number of clusters.
    m : float > 1, default=1.03
        The weighting exponent, as in `PAC`.
    metric : {"sqeuclidean", "cosine"}, default="sqeuclidean"
        Between features; "cosine" for the features of a network.
    balance : float, default=1.0
        As in `PAC`.
    hidden : tuple of int, default=()
        Widths of hidden layers; none is a linear classifier.
    batch_size : int or "auto", default="auto"
        Rows a step; "auto" is 64 for each cluster and at least 512. Small batches blur targets.
    max_epochs : int, default=100
        Passes over the data; the learning rate falls to zero along a cosine.
    learning_rate : float, default=0.08
        Of Adam, divided by the square root of the number of features.
    device : str, default="auto"
        "auto" is CUDA, else MPS, else the CPU; or a device of torch.
    random_state : int, RandomState instance or None, default=None
        Fixes weights and batches.
    verbose : int, default=0
        1 logs each tenth of the epochs to the logger "probagg".

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        The most probable cluster of each sample.
    network_ : torch.nn.Module
        From features to logits, on the CPU.
    diagnosis_ : Diagnosis
        A label-free reading of some rows after training.
    loss_history_ : list of float
        The mean loss of each epoch.
    n_iter_ : int
        Steps made.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> head = OPAHead(10, max_epochs=30, random_state=0).fit(load_digits().data)
    >>> head.predict_proba(load_digits().data[:2]).shape
    (2, 10)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "m": [Interval(Real, 1.0, None, closed="neither")],
        "metric": [StrOptions(set(LINEAR_METRICS))],
        "balance": [Interval(Real, 0.0, 2.0, closed="both")],
        "hidden": [tuple, list],
        "batch_size": [Interval(Integral, 2, None, closed="left"), StrOptions({"auto"})],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0.0, None, closed="neither")],
        "device": [str, torch.device],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        m: float = 1.03,
        metric: str = "sqeuclidean",
        balance: float = 1.0,
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
        self.hidden = hidden
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on the rows of X; `y` is ignored."""
        self._validate_params()
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        if len(X) < self.n_clusters:
            raise ValueError(
                f"n_samples={len(X)} should be >= n_clusters={self.n_clusters}. Pass more samples "
                "or ask for fewer clusters."
            )
        seed = check_random_state(self.random_state).randint(2**31)
        device = _device(self.device)
        network = _network(X, self.hidden, self.n_clusters, seed).to(device)
        self._train(network, X, np.random.default_rng(seed), device)
        self.network_ = network.eval().cpu()
        some = X[:: 1 + len(X) // 4096]
        probs = torch.from_numpy(self.predict_proba(some))
        self.diagnosis_ = diagnose(_rows(some), probs, self.m, metric=self.metric)
        self.labels_ = self.predict(X)
        return self

    def _train(
        self, network: nn.Module, X: np.ndarray, rng: np.random.Generator, device: torch.device
    ) -> None:
        """Mini-batches in random order, Adam, the learning rate falling along a cosine."""
        size = max(512, 64 * self.n_clusters) if self.batch_size == "auto" else self.batch_size
        size = max(2, min(int(size), len(X) // 3 or len(X)))
        steps = max(1, len(X) // size)
        loss_of = OPALoss(self.m, metric=self.metric, balance=self.balance)
        rate = self.learning_rate / X.shape[1] ** 0.5
        optimizer = torch.optim.Adam(network.parameters(), lr=rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.max_epochs * steps)
        self.loss_history_: list[float] = []
        for epoch in range(1, self.max_epochs + 1):
            order, total = rng.permutation(len(X)), torch.zeros((), device=device)
            for step in range(steps):
                rows = np.sort(order[step * size : (step + 1) * size])  # in order, for memory maps
                batch = _rows(X[rows]).to(device)
                optimizer.zero_grad(set_to_none=True)
                loss = loss_of(batch, network(batch))
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

    def predict_proba(self, X: Any) -> np.ndarray:
        """P for the rows of X; no row affects another's."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        parts = []
        with torch.inference_mode():
            for start in range(0, len(X), 4096):
                parts.append(self.network_(_rows(X[start : start + 4096])).softmax(1).numpy())
        return np.concatenate(parts)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable cluster of each row."""
        return self.predict_proba(X).argmax(1).astype(np.int32)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the network and its settings as one safetensors file, without pickle."""
        check_is_fitted(self)
        params = self.get_params() | {"device": str(self.device), "hidden": list(self.hidden)}
        params |= {"random_state": None} if not isinstance(self.random_state, Integral) else {}
        learned = {name: getattr(self, name) for name in _SAVED}
        tensors = {name: tensor.numpy() for name, tensor in self.network_.state_dict().items()}
        write_safetensors(path, FORMAT, tensors, {"params": params, "learned": learned})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """An OPAHead that predicts, from a file that `save` wrote."""
        tensors, description = read_safetensors(path, FORMAT)
        head = cls(**description["params"])
        for name, value in description["learned"].items():
            setattr(head, name, value)
        blank = np.zeros((1, head.n_features_in_), np.float32)
        head.network_ = _network(blank, head.hidden, head.n_clusters, seed=0).eval()
        state = {name: torch.from_numpy(array) for name, array in tensors.items()}
        head.network_.load_state_dict(state)
        return head


class _Standardize(nn.Module):
    """Features moved and scaled as a whole, so that their mean square is 1."""

    mean: Tensor
    spread: Tensor

    def __init__(self, X: np.ndarray) -> None:
        super().__init__()
        some = X[:: 1 + len(X) // 4096].astype(np.float64)
        mean = some.mean(0)
        spread = np.sqrt(((some - mean) ** 2).mean()) or 1.0
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("spread", torch.tensor(spread, dtype=torch.float32))

    def forward(self, X: Tensor) -> Tensor:
        return (X - self.mean) / self.spread


def _network(X: np.ndarray, hidden: Any, n_clusters: int, seed: int) -> nn.Sequential:
    """Standardised features, hidden layers with ReLU, logits; weights from the seed alone."""
    widths = [X.shape[1], *hidden, n_clusters]
    layers: list[nn.Module] = [_Standardize(X)]
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        layers += [nn.ReLU()] if i else []
        layer = nn.utils.skip_init(nn.Linear, inputs, outputs)  # leaves the global seed alone
        bound = inputs**-0.5
        generator = torch.Generator().manual_seed(seed + i)
        for parameter in (layer.weight, layer.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        layers.append(layer)
    return nn.Sequential(*layers)


def _rows(X: np.ndarray) -> Tensor:
    return torch.tensor(np.asarray(X, dtype=np.float32))


def _device(name: Any) -> torch.device:
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
