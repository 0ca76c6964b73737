"""What is read of a network in training: label-free readings, and scores against the classes.

Labels are reported, never used to choose.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from probagg import PAC, Recipe
from probagg.aggregation import critical_m
from probagg.dpac.feed import Feed, infer
from probagg.dpac.model import Model
from probagg.dpac.randomness import key
from probagg.dpac.stages import make_views
from probagg.dpac.start import outputs_of
from probagg.dpac.step import Batch
from probagg.dpac.views import Views
from probagg.metrics import clustering_accuracy, evaluate
from probagg.opa.diagnose import diagnose

NEIGHBOURS = 20
LOOKED_AT = 10_000  # images whose random views are compared with their clean one
BLOCK = 2000  # rows of a matrix of similarities at a time


@dataclasses.dataclass
class Subject:
    """A network in training and the images it is trained on."""

    model: Model
    views: Views
    feed: Feed
    y: np.ndarray

    def infer(self) -> tuple[Tensor, Tensor]:
        """Features and probabilities of all images on the device, in the precision of training."""
        device = self.feed.device
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            features, probabilities = infer(self.model, self.views, self.feed)
        return features.to(device), probabilities.to(device)


# Label-free.


def quick_reading(P: Tensor, before: Tensor | None, epochs: int) -> dict[str, float]:
    """What a curve shows: how decided, how even, and how many labels changed in an epoch."""
    mean = P.mean(0)
    found = {
        "sharpness": float(P.amax(1).mean()),
        "evenness": float(-(mean * mean.clamp(min=1e-12).log()).sum() / np.log(len(mean))),
    }
    if before is not None:
        found["label_change_per_epoch"] = float((P.argmax(1) != before).float().mean()) / epochs
    return found


def full_reading(
    subject: Subject, recipe: Recipe, X: Tensor, P: Tensor, by_pac: Tensor
) -> dict[str, Any]:
    """All that can be said of a clustering without labels."""
    labels, settings = P.argmax(1), recipe.cluster
    rows = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))[:BLOCK]
    x = outputs_of(subject.model.distance_layers, X[rows].cpu())
    state = diagnose(x, P[rows].cpu(), settings.m, metric=settings.metric, warn=False)
    same = labels[neighbours(X, X, NEIGHBOURS + 1)[:, 1:]] == labels[:, None]
    return {
        **quick_reading(P, None, 1),
        "sizes": torch.bincount(labels, minlength=P.shape[1]).tolist(),
        "pac_agreement": clustering_accuracy(by_pac, labels.cpu()),
        "neighbour_agreement": float(same.float().mean()),
        **{f"{name}_agreement": agreement(subject, labels, name) for name in ("weak", "strong")},
        "diagnosis": dataclasses.asdict(state),
    }


@torch.no_grad()
def agreement(subject: Subject, labels: Tensor, view: str) -> float:
    """The share of images whose random view gets the label of their clean view."""
    model, feed = subject.model.eval(), subject.feed
    n = min(LOOKED_AT, len(feed))
    number = torch.tensor(key(0, "reading"), device=feed.device)
    same = 0
    for images, rows in feed.batches(torch.arange(n).split(500)):
        (made,) = make_views(subject.views, (view,), Batch(images, rows, number))
        same += int((model(made)[1].argmax(1) == labels[rows]).sum())
    return same / n


def neighbours(X: Tensor, among: Tensor, k: int) -> Tensor:
    """The k rows of `among` nearest to each row of X, by cosine."""
    X, among = (torch.nn.functional.normalize(rows, dim=1) for rows in (X, among))
    return torch.cat([(block @ among.T).topk(k).indices for block in X.split(BLOCK)])


# With labels: reported, never used to choose.


def knn(X: Tensor, y: np.ndarray) -> float:
    """The accuracy of the neighbours' majority, of a sixth of the images against the rest."""
    held = torch.from_numpy(held_out(y)).to(X.device)
    classes = torch.from_numpy(y).long().to(X.device)
    known = classes[~held]
    votes = known[neighbours(X[held], X[~held], min(NEIGHBOURS, len(known)))]
    return float((votes.mode(1).values == classes[held]).float().mean())


def held_out(y: np.ndarray) -> np.ndarray:
    """The last sixth (CIFAR-10's test set), or every sixth image of a set sorted by class."""
    rows = np.arange(len(y))
    last = rows >= len(y) - len(y) // 6
    return last if len(np.unique(y[last])) == len(np.unique(y)) else rows % 6 == 5


def table3(
    X: np.ndarray, y: np.ndarray, k: int, metric: str, m: float, runs: int
) -> dict[str, Any]:
    """PAC and k-means on the frozen features: Table 3's columns, and what the objective picks."""
    pacs = [PAC(k, metric=metric, m=m, random_state=seed).fit(X) for seed in range(runs)]
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    means = [KMeans(k, n_init=1, random_state=seed).fit(unit) for seed in range(runs)]
    best = min(pacs, key=lambda pac: pac.objective_)
    return {
        "pac": [evaluate(y, pac.labels_) for pac in pacs],
        "pac_of_lowest_objective": evaluate(y, best.labels_),
        "kmeans": [evaluate(y, mean.labels_) for mean in means],
    }


@torch.no_grad()
def classifier_labels(model: Model, X: Tensor) -> Tensor:
    """What the classifier says where the linear head is the answer."""
    return model.classifier.eval()(X).argmax(1)


def read_stage(
    stage: str, subject: Subject, recipe: Recipe, folder: Path, runs: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Readings without labels and scores with them; labels or neighbours go to the folder."""
    X, P = subject.infer()
    settings, k = recipe.cluster, P.shape[1]
    scores: dict[str, Any] = {"knn": knn(X, subject.y)}
    if stage == "pretrain":
        near = neighbours(X, X, NEIGHBOURS + 1)[:, 1:].to(torch.int32)
        np.save(folder / "pretrain.neighbours.npy", near.cpu().numpy())
        if runs:
            features = X.cpu().numpy()
            scores["table3"] = table3(features, subject.y, k, settings.metric, settings.m, runs)
        return {"critical_m": critical_m(X[:BLOCK].cpu(), settings.metric)}, scores
    pac = PAC(k, metric=settings.metric, m=settings.m, n_init=3, random_state=0).fit(X)
    by_pac = pac.labels_.cpu()
    readings = full_reading(subject, recipe, X, P, by_pac)
    labels = P.argmax(1)
    np.save(folder / f"{stage}.labels.npy", labels.cpu().numpy().astype(np.uint8))
    scores |= evaluate(subject.y, labels.cpu())
    scores["pac_on_features"] = evaluate(subject.y, by_pac)
    if stage == "self_label":
        answers = classifier_labels(subject.model, X)
        readings["heads_agreement"] = float((answers == labels).float().mean())
        scores["classifier"] = evaluate(subject.y, answers.cpu())
    return readings, scores
