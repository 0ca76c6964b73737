"""The network of OPAHead: standardised rows, and linear layers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from probagg.aggregation import embed


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


def make_network(n_features: int, hidden: Any, n_clusters: int, seed: int) -> nn.Sequential:
    """Return linear layers with ReLU between them; weights depend on the seed alone."""
    network = empty_network(n_features, hidden, n_clusters)
    layers = (layer for layer in network if isinstance(layer, nn.Linear))
    for i, layer in enumerate(layers):
        bound = layer.in_features**-0.5
        generator = torch.Generator().manual_seed(seed + i)
        for parameter in (layer.weight, layer.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return network


def empty_network(n_features: int, hidden: Any, n_clusters: int) -> nn.Sequential:
    """Return the layers without values; nothing is drawn from torch's global generator."""
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise([n_features, *hidden, n_clusters])):
        layers += [nn.ReLU()] if i else []
        layers += [nn.utils.skip_init(nn.Linear, inputs, outputs, dtype=torch.float32)]
    return nn.Sequential(*layers)
