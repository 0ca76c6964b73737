"""DPAC from scratch, stage by stage: what is seen without labels, and apart from it the scores.

    python -m benchmarks training --out runs/cifar10/all --name cifar10 --seeds 0 1 2
    python -m benchmarks training --out runs/cifar10/jpac --stages cluster \\
        --weights runs/cifar10/all/seed0/pretrain --set cluster.objective=pac
    python -m benchmarks training --out runs/cifar10/last --stages self_label \\
        --weights runs/cifar10/all/seed0/cluster --way neighbours \\
        --way memory self_label.labels=memory

A seed's folder holds, for each stage, STAGE.json (label-free readings), STAGE.revealed.json (scores
against the classes), STAGE.labels.npy and the weights STAGE/, which --weights takes, and
`probagg predict` too; the neighbours of pre-training's features; the curves readings.jsonl and
revealed.jsonl. What is printed has seen no label. Each --way has a folder of its own. The ways, and
the stage that they start from, are ranked by the modularity of their labels on the graph of the
pre-trained features, in ranking.json. A run that --minutes stops goes on with the same command,
here or wherever its folder is copied to; stages that have ended are not trained or read again.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import itertools
import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.data import open_lab_images
from benchmarks.paper.readings import Subject, knn, quick_reading, read_stage
from benchmarks.paper.weights import read_weights, write_weights
from benchmarks.record import Cell, record
from probagg import Recipe
from probagg.data.images import ArrayImages, ImageSet
from probagg.dpac.dpac import recipe_stages
from probagg.dpac.engine import Engine, Machine, Progress
from probagg.dpac.feed import Feed, Joined
from probagg.dpac.model import build_model
from probagg.dpac.stages import ClusterStage, NetworkStage, Setup
from probagg.dpac.views import Views
from probagg.environment import environment
from probagg.errors import Interrupted
from probagg.metrics import clustering_accuracy
from probagg.neighbours.graph import modularity
from probagg.progress import logger

STAGES = ("pretrain", "cluster", "self_label")
Scores = dict[str, Any]
ClusterStageMaker = Callable[[Setup], ClusterStage]


@dataclasses.dataclass(frozen=True)
class Job:
    """What a run trains, where it starts, what it reads and where that goes."""

    out: Path  # holds a folder per seed
    stages: tuple[str, ...] = STAGES
    weights: Path | None = None  # folder of weights to start from
    clustering: ClusterStageMaker = ClusterStage  # what makes the stage of this name
    minutes: float | None = None  # save and stop after so long
    every: int = 10  # epochs between points of a curve
    keep: int | None = None  # also keep pre-training's weights at this epoch
    table3: int = 5  # runs of PAC and of k-means on the pre-trained features
    features: bool = False  # write STAGE.features.npz too
    compile: bool | None = None
    verbose: bool = True  # print what has seen no label
    reveal: Callable[[NetworkStage, Tensor, Tensor], Scores] | None = None  # more of a curve


class Watch:
    """Follows training: losses of each epoch, a look at all images every few of them."""

    def __init__(self, folder: Path, recipe: Recipe, job: Job) -> None:
        self.folder, self.recipe, self.job = folder, recipe, job
        self.subject: Subject | None = None
        self.stage: NetworkStage | None = None
        self.before: Tensor | None = None  # labels at the last look, and the epoch of it
        self.read = 0
        self.last: dict[str, float] = {}
        self.seconds = 0.0  # of epochs
        self.looking = 0.0  # seconds spent here

    def __call__(self, progress: Progress) -> None:
        if progress.metrics is None or self.subject is None:
            return
        began = time.monotonic()
        self.last = progress.metrics
        self.seconds += progress.metrics["seconds"]
        if progress.stage == "pretrain" and progress.epoch == self.job.keep:
            kept = self.folder / f"pretrain-{self.job.keep}"
            write_weights(self.subject.model, self.recipe, kept)
        if progress.epoch % self.job.every == 0 or progress.epoch in (1, progress.epochs):
            self._look(progress, progress.metrics)
        self.looking += time.monotonic() - began

    def _look(self, progress: Progress, metrics: dict[str, float]) -> None:
        """Add a point to both curves."""
        assert self.subject is not None
        assert self.stage is not None
        X, P = self.subject.infer()
        at = {"stage": progress.stage, "epoch": progress.epoch, "seconds": self.seconds}
        seen, scores = dict(metrics), {"knn": knn(X, self.subject.y)}
        if progress.stage != "pretrain":
            seen |= quick_reading(P, self.before, max(progress.epoch - self.read, 1))
            self.before, self.read = P.argmax(1), progress.epoch
            scores["acc"] = clustering_accuracy(self.subject.y, self.before.cpu())
            scores |= self.job.reveal(self.stage, X, P) if self.job.reveal else {}
        append(self.folder / "readings.jsonl", {**seen, **at})
        append(self.folder / "revealed.jsonl", {**at, **scores})
        if self.job.verbose:
            print(json.dumps({**at, **{k: round(v, 4) for k, v in seen.items()}}), flush=True)


def append(path: Path, line: dict[str, Any]) -> None:
    """One more line of a curve."""
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def weights_hash(module: nn.Module) -> str:
    """Return a digest of every weight and buffer, which is equal only if all bits are."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def train(data: ImageSet, recipe: Recipe, seed: int, job: Job) -> dict[str, Any]:
    """Train one seed through the stages, unless they are done; return what it read and scored."""
    folder = job.out / f"seed{seed}"
    path = folder / "recipe.toml"
    is_same = path.is_file() and path.read_text() == recipe.to_toml()
    if not (is_same and all(is_read(folder, name) for name in job.stages)):
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(recipe.to_toml())
        _train(data, recipe, seed, job, folder)
    rows = {}
    for name in job.stages:
        readings, scores = (
            json.loads((folder / f"{name}.{end}").read_text()) for end in ("json", "revealed.json")
        )
        rows[name] = {**scores, "label_free": readings, "seconds": readings["seconds"]}
        rows[name]["curve"] = curve(folder, name)
    return rows


def is_read(folder: Path, stage: str) -> bool:
    """Return whether the scores of a stage, its last file, are there."""
    return (folder / f"{stage}.revealed.json").is_file()


def _train(data: ImageSet, recipe: Recipe, seed: int, job: Job, folder: Path) -> None:
    """Train and read the stages, those left where a run goes on."""
    if job.minutes == 0.0:
        raise Interrupted("No time is left.")
    model = build_model(recipe, len(np.unique(data.y)), seed=seed)
    if job.weights:
        model.load_state_dict(read_weights(job.weights))
    watch = Watch(folder, recipe, job)
    identity = {
        "recipe": recipe.to_toml(),
        "seed": seed,
        "stages": list(job.stages),
        "clustering": repr(job.clustering),
        "data": data.fingerprint(),
        "start": weights_hash(model),
    }
    machine = Machine(compile=job.compile, max_minutes=job.minutes)
    engine = Engine(
        model, seed=seed, machine=machine, out=folder, identity=identity, progress=watch
    )
    resumed = engine.resume()
    subject = Subject(model, Views(recipe.views), Feed(data, engine.device), data.y)
    watch.subject = subject
    setup = Setup(model, subject.views, subject.feed, recipe, seed, engine.autocast)
    for name in job.stages:
        began, watch.looking = time.monotonic(), 0.0
        watch.stage = stage = make_stage(name, setup, data, job)
        was_done = name in engine.position.done
        engine.train(stage)
        if was_done and is_read(folder, name):  # the weights may be those of a later stage
            continue
        seconds = time.monotonic() - began - watch.looking
        write_weights(model, recipe, folder / name)
        readings, scores = read_stage(name, subject, recipe, folder, job.table3)
        readings |= {"last_epoch": watch.last, "seconds": seconds, "resumed": resumed}
        if job.features:
            X = subject.infer()[0].half().cpu().numpy()
            np.savez(folder / f"{name}.features.npz", X=X, y=data.y)
        (folder / f"{name}.json").write_text(json.dumps(readings, indent=1))
        (folder / f"{name}.revealed.json").write_text(json.dumps(scores, indent=1))
        if job.verbose:
            print(name, json.dumps(readings), flush=True)


def curve(folder: Path, stage: str) -> list[Scores]:
    """Return the scores of a stage's epochs; an epoch that was trained twice has the later ones."""
    points = map(json.loads, (folder / "revealed.jsonl").read_text().splitlines())
    return list({each["epoch"]: each for each in points if each["stage"] == stage}.values())


def make_stage(name: str, setup: Setup, data: ImageSet, job: Job) -> NetworkStage:
    """Return a stage; pre-training also uses the images that a set has for it alone (STL-10)."""
    if name == "cluster":
        return job.clustering(setup)
    (stage,) = (each for each in recipe_stages(setup.recipe) if each.name == name)
    if stage.takes_extra and data.extra is not None:
        feed = Feed(Joined(data, data.extra), setup.feed.device)
        setup = dataclasses.replace(setup, feed=feed)
    return stage(setup)


def rank(stages: dict[str, Path], near: np.ndarray) -> dict[str, dict[str, Any]]:
    """Return what is seen of stages without classes, the most modular on a kNN graph first.

    A stage is given by its file STAGE.json, beside which its labels are.
    """
    seen = {}
    for name, path in stages.items():
        labels, read = np.load(path.with_suffix(".labels.npy")), json.loads(path.read_text())
        seen[name] = {
            "modularity": modularity(near, labels),
            "sizes": np.bincount(labels).tolist(),
            **{reading: read[f"{reading}_agreement"] for reading in ("strong", "pac")},
            "state": read["diagnosis"]["state"],
        }
    return dict(sorted(seen.items(), key=lambda stage: -stage[1]["modularity"]))


def open_data(name: str, most: int | None = None) -> ArrayImages:
    """Return an image set in memory, or its first images."""
    images = open_lab_images(name)
    rows = np.arange(most or len(images))
    return ArrayImages(images.read(rows), images.y[rows], images.name, images.extra)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", required=True, type=Path, help="folder of the run")
    parser.add_argument("--recipe", default="cifar10/fast", help="a name or a .toml file")
    parser.add_argument("--set", nargs="*", default=[], help="as cluster.m=1.02")
    parser.add_argument(
        "--way", nargs="+", action="append", default=[], metavar=("NAME", "SETTING"),
        help="one of several, from --weights: a name, and settings beside those of --set",
    )  # fmt: skip
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--weights", type=Path, help="folder of weights to start from")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--minutes", type=float, help="save and stop after so long (code 75)")
    parser.add_argument("--every", type=int, default=10, help="epochs between points of a curve")
    parser.add_argument("--keep", type=int, help="also keep pre-training's weights at this epoch")
    parser.add_argument("--table3", type=int, default=5, help="runs of PAC and of k-means")
    parser.add_argument("--features", action="store_true", help="write STAGE.features.npz too")
    parser.add_argument("--data", default="cifar10", help="a name, or an .npz file with X and y")
    parser.add_argument("--first", type=int, help="so many images only, to try the script")
    parser.add_argument("--compile", action="store_true", help="compile short stages too")
    parser.add_argument("--name", help="write benchmarks/results/training/NAME.json")
    return parser


def main() -> None:
    """Run all ways and seeds, rank the ways, and record where a name is given."""
    a, began = _parser().parse_args(), time.monotonic()
    if a.way and not a.weights:
        raise SystemExit("--way needs --weights, from which all ways start.")
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
    logger.setLevel(logging.INFO)  # the runs of PAC among which clustering starts
    data = open_data(a.data, a.first)
    ways = {way[0]: [*a.set, *way[1:]] for way in a.way} or {"": a.set}
    stages, rows = tuple(a.stages.split(",")), []
    ends = {"start": a.weights.with_suffix(".json")} if a.weights else {}
    try:
        for seed, (way, settings) in itertools.product(a.seeds, ways.items()):
            recipe = Recipe.of(a.recipe).override(settings)
            job = Job(
                a.out / way,
                stages,
                a.weights,
                minutes=a.minutes and max(0.0, a.minutes - (time.monotonic() - began) / 60),
                every=a.every,
                keep=a.keep,
                table3=a.table3,
                features=a.features,
                compile=a.compile or None,
            )
            found = train(data, recipe, seed, job)
            ends[f"{way}/seed{seed}"] = job.out / f"seed{seed}" / f"{stages[-1]}.json"
            circumstances = {
                "recipe": recipe.name,
                "settings": settings,
                "continued_from": a.weights and str(a.weights),  # perhaps of another machine
            }
            rows += [
                Cell(data.name, stage, way, seed).row(values | {"settings": circumstances})
                for stage, values in found.items()
            ]
    except Interrupted as stopped:
        print(stopped)
        sys.exit(75)
    (a.out / "env.json").write_text(json.dumps(environment(), indent=1))
    if a.way:
        graph = np.load(a.weights.parent / "pretrain.neighbours.npy")
        if a.weights.name == "pretrain":  # which has no clusters
            del ends["start"]
        ranking = rank(ends, graph)
        (a.out / "ranking.json").write_text(json.dumps(ranking, indent=1))
        for name, seen in ranking.items():
            print(name, json.dumps(seen))
    if a.name:
        record("training", rows, a.name)
