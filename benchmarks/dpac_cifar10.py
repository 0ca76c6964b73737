"""CIFAR-10 from scratch, stage by stage: what is seen without labels, and apart from it the rest.

    python benchmarks/dpac_cifar10.py --out runs/cifar10/all --name dpac_cifar10 --seeds 0 1 2
    python benchmarks/dpac_cifar10.py --out runs/cifar10/jpac --stages cluster \\
        --weights runs/cifar10/all/seed0/pretrain --set cluster.objective=pac
    python benchmarks/dpac_cifar10.py --out runs/imagenette --data imagenette \\
        --recipe imagenet10/fast

A seed's folder holds, for each stage, STAGE.json (label-free readings), STAGE.revealed.json (scores
against the classes), STAGE.labels.npy and the compact model STAGE/, which --weights takes, and
`probagg predict` too; the neighbours of pre-training's features; the curves readings.jsonl and
revealed.jsonl. What is printed has seen no label. A run that --minutes stops goes on with the same
command, here or wherever its folder is copied to. `dpac_cifar10_ways.py` compares several ways.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lab_data import open_lab_images
from record import record
from sklearn.cluster import KMeans
from torch import Tensor

from probagg import PAC, Recipe
from probagg.aggregation import critical_m
from probagg.data.images import ArrayImages
from probagg.dpac.checkpoint import load_compact, weights_hash
from probagg.dpac.engine import Engine, Progress
from probagg.dpac.feed import Feed
from probagg.dpac.inference import infer
from probagg.dpac.machine import Machine
from probagg.dpac.model import Model, build_model
from probagg.dpac.randomness import key
from probagg.dpac.saved import load_weights, save_model
from probagg.dpac.self_labelling import self_label_stage
from probagg.dpac.stages import ClusterStage, PretrainStage, Setup, make_views
from probagg.dpac.step import Batch
from probagg.dpac.views import Views
from probagg.environment import environment
from probagg.errors import Interrupted
from probagg.metrics import clustering_accuracy, evaluate
from probagg.opa.diagnose import diagnose
from probagg.progress import logger

STAGES = {"pretrain": PretrainStage, "cluster": ClusterStage}
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
    subject: Subject, recipe: Recipe, X: Tensor, P: Tensor, pac: PAC
) -> dict[str, Any]:
    """All that can be said of a clustering without labels."""
    labels, settings = P.argmax(1), recipe.cluster
    rows = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))[:BLOCK]
    state = diagnose(X[rows].cpu(), P[rows].cpu(), settings.m, metric=settings.metric, warn=False)
    same = labels[neighbours(X, X, NEIGHBOURS + 1)[:, 1:]] == labels[:, None]
    return {
        **quick_reading(P, None, 1),
        "sizes": torch.bincount(labels, minlength=P.shape[1]).tolist(),
        "pac_agreement": clustering_accuracy(pac.labels_, labels.cpu()),
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


# Running.


class Watch:
    """Follows training: losses of each epoch, a look at all images every few of them."""

    def __init__(self, folder: Path, recipe: Recipe, every: int, keep: int | None) -> None:
        self.folder, self.recipe, self.every, self.keep = folder, recipe, every, keep
        self.subject: Subject | None = None
        self.before: Tensor | None = None  # labels at the last look, and the epoch of it
        self.read = 0
        self.last: dict[str, float] = {}
        self.seconds = 0.0

    def __call__(self, progress: Progress) -> None:
        if progress.metrics is None or self.subject is None:
            return
        self.last = progress.metrics
        self.seconds += progress.metrics["seconds"]
        if progress.stage == "pretrain" and progress.epoch == self.keep:
            save_model(
                self.subject.model, self.recipe, self.folder / f"pretrain-{self.keep}", compact=True
            )
        if progress.epoch % self.every and progress.epoch not in (1, progress.epochs):
            return
        X, P = self.subject.infer()
        at = {"stage": progress.stage, "epoch": progress.epoch, "seconds": self.seconds}
        seen, scores = dict(progress.metrics), {"knn": knn(X, self.subject.y)}
        if progress.stage != "pretrain":
            seen |= quick_reading(P, self.before, max(progress.epoch - self.read, 1))
            self.before, self.read = P.argmax(1), progress.epoch
            scores["acc"] = clustering_accuracy(self.subject.y, self.before.cpu())
        append(self.folder / "readings.jsonl", {**seen, **at})
        append(self.folder / "revealed.jsonl", {**at, **scores})
        print(json.dumps({**at, **{k: round(v, 4) for k, v in seen.items()}}), flush=True)


def append(path: Path, line: dict[str, Any]) -> None:
    """One more line of a curve."""
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


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
    features, metric = X.cpu().numpy(), settings.metric
    scores: dict[str, Any] = {"knn": knn(X, subject.y)}
    if stage == "pretrain":
        near = neighbours(X, X, NEIGHBOURS + 1)[:, 1:].to(torch.int32)
        np.save(folder / "pretrain.neighbours.npy", near.cpu().numpy())
        if runs:
            scores["table3"] = table3(features, subject.y, k, metric, settings.m, runs)
        return {"critical_m": critical_m(X[:BLOCK].cpu(), metric)}, scores
    pac = PAC(k, metric=metric, m=settings.m, n_init=3, random_state=0).fit(features)
    readings = full_reading(subject, recipe, X, P, pac)
    labels = P.argmax(1)
    np.save(folder / f"{stage}.labels.npy", labels.cpu().numpy().astype(np.uint8))
    scores |= evaluate(subject.y, labels.cpu())
    scores["pac_on_features"] = evaluate(subject.y, pac.labels_)
    if stage == "self_label":
        answers = classifier_labels(subject.model, X)
        readings["heads_agreement"] = float((answers == labels).float().mean())
        scores["classifier"] = evaluate(subject.y, answers.cpu())
    return readings, scores


def train(data: ArrayImages, recipe: Recipe, seed: int, a: argparse.Namespace) -> dict[str, Any]:
    """One seed through the stages; what it read and scored."""
    folder = Path(a.out) / f"seed{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.toml").write_text(recipe.to_toml())
    model = build_model(recipe, len(np.unique(data.y)), seed=seed)
    if a.weights:
        load_weights(model, load_compact(Path(a.weights)), a.weights)
    watch = Watch(folder, recipe, a.every, a.keep)
    identity = {
        "recipe": recipe.to_toml(),
        "seed": seed,
        "stages": a.stages,
        "data": data.fingerprint(),
        "start": weights_hash(model),
    }
    machine = Machine(compile=a.compile or None, max_minutes=a.minutes)
    engine = Engine(
        model, seed=seed, machine=machine, out=folder, identity=identity, progress=watch
    )
    engine.resume()
    subject = Subject(model, Views(recipe.views), Feed(data, engine.device), data.y)
    watch.subject = subject
    setup = Setup(model, subject.views, subject.feed, recipe, seed, engine.autocast)
    rows: dict[str, Any] = {}
    targets = None  # offline targets, which clustering hands on to self-labelling
    for stage in a.stages:
        began = time.monotonic()
        part = STAGES[stage](setup) if stage != "self_label" else self_label_stage(setup, targets)
        engine.train(part)
        targets = part.state.get("targets", targets)
        save_model(model, recipe, folder / stage, compact=True)
        seconds = time.monotonic() - began
        readings, scores = read_stage(stage, subject, recipe, folder, a.table3)
        readings |= {"last_epoch": watch.last, "seconds": seconds}
        (folder / f"{stage}.json").write_text(json.dumps(readings, indent=1))
        (folder / f"{stage}.revealed.json").write_text(json.dumps(scores, indent=1))
        print(stage, json.dumps(readings), flush=True)
        rows[stage] = {"label_free": readings, "revealed": scores}
        if a.features:
            X = subject.infer()[0].half().cpu().numpy()
            np.savez(folder / f"{stage}.features.npz", X=X, y=data.y)
    return rows


def main() -> None:
    """Run, and record where a name is given."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", required=True, help="folder of the run")
    parser.add_argument("--recipe", default="cifar10/fast", help="a name or a .toml file")
    parser.add_argument("--set", nargs="*", default=[], help="as cluster.m=1.02")
    parser.add_argument("--stages", default="pretrain,cluster,self_label")
    parser.add_argument("--weights", help="folder of compact weights to start from")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--minutes", type=float, help="save and stop after so long (code 75)")
    parser.add_argument("--every", type=int, default=10, help="epochs between points of a curve")
    parser.add_argument("--keep", type=int, help="also keep pre-training's weights at this epoch")
    parser.add_argument("--table3", type=int, default=5, help="runs of PAC and of k-means")
    parser.add_argument("--features", action="store_true", help="write STAGE.features.npz too")
    parser.add_argument("--data", default="cifar10", help="a name, or an .npz file with X and y")
    parser.add_argument("--first", type=int, help="so many images only, to try the script")
    parser.add_argument("--compile", action="store_true", help="compile short stages too")
    parser.add_argument("--name", help="write benchmarks/results/NAME.json")
    a = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
    logger.setLevel(logging.INFO)  # the runs of PAC among which clustering starts
    a.stages = a.stages.split(",")
    images = open_lab_images(a.data)
    rows = np.arange(a.first or len(images))
    data = ArrayImages(images.read(rows), images.y[rows], images.name)
    recipe = Recipe.of(a.recipe).override(a.set)
    try:
        runs = {seed: train(data, recipe, seed, a) for seed in a.seeds}
    except Interrupted as stopped:
        print(stopped)
        sys.exit(75)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    result = {
        "recipe": recipe.name,
        "settings": a.set,
        "data": data.name,
        "continued_from": a.weights,  # compact weights of another run, perhaps of another machine
        "gpu": gpu,
        "seeds": runs,
    }
    text = json.dumps({"env": environment(), **result}, indent=1)
    (Path(a.out) / "result.json").write_text(text)
    if a.name:
        record(a.name, result)


if __name__ == "__main__":
    main()
