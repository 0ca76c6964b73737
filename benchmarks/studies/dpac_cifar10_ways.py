"""Rank ways of clustering CIFAR-10 without labels; then, if asked, see how right the ranking was.

    python -m benchmarks dpac_cifar10_ways runs/cifar10/ways --neighbours FILE.npy \\
        [--reveal] [--name cluster_seed0]

The folder holds runs of `training` from the same pre-trained weights, and FILE the neighbours
that pre-training left. A way that `diagnose` does not call "clustering" comes last. The others are
ranked by the sum of their ranks in four readings:

strong       images whose strong view gets the label of the clean one
frozen       neighbours in the pre-trained features that have the same label
consensus    labels that the other ways agree with, on average
pac          labels that PAC on the way's own features agrees with
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata, spearmanr

from benchmarks.paper.training import curve
from benchmarks.record import Cell, record
from probagg.metrics import clustering_accuracy

READINGS = ("strong", "frozen", "consensus", "pac")


def collect(folder: Path, stage: str, near: np.ndarray) -> dict[str, dict[str, Any]]:
    """Label-free readings of every way that ended."""
    found = sorted(folder.glob(f"*/seed*/{stage}.json"))
    labels = {path: np.load(path.with_suffix(".labels.npy")) for path in found}
    ways = {}
    for path in found:
        read, own = json.loads(path.read_text()), labels[path]
        others = [clustering_accuracy(own, labels[other]) for other in found if other != path]
        ways[str(path.parent)] = {
            "clustering": read["diagnosis"]["state"] == "clustering",
            "strong": read["strong_agreement"],
            "frozen": float((own[near] == own[:, None]).mean()),
            "consensus": float(np.mean(others)) if others else 1.0,
            "pac": read["pac_agreement"],
            "sharpness": read["sharpness"],
            "evenness": read["evenness"],
        }
    return ways


def ranked(ways: dict[str, dict[str, Any]]) -> list[str]:
    """Names of ways, the best first."""
    sums = sum(rankdata([-way[name] for way in ways.values()]) for name in READINGS)
    order = dict(zip(ways, sums, strict=True))
    return sorted(ways, key=lambda name: (not ways[name]["clustering"], order[name]))


def main() -> None:
    """Print the ranking."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stage", default="cluster")
    parser.add_argument("--neighbours", type=Path, required=True)
    parser.add_argument("--reveal", action="store_true", help="add accuracies, at the end")
    parser.add_argument("--name", help="with --reveal: write results/dpac_cifar10_ways/NAME.json")
    parser.add_argument("--seed", type=int, default=0, help="of the pre-training, for the file")
    a = parser.parse_args()
    ways = collect(a.folder, a.stage, np.load(a.neighbours))
    order = ranked(ways)
    found = {name: revealed(Path(name), a.stage) for name in order} if a.reveal else {}
    for name in order:
        line = " ".join(f"{key} {float(value):.4f}" for key, value in ways[name].items())
        if a.reveal:
            line += " | " + " ".join(f"{key} {found[name][key]:.4f}" for key in ("acc", "knn"))
        print(f"{name}: {line}")
    if not a.reveal:
        return
    agreement = correlations(ways, [found[name]["acc"] for name in order], order)
    print("rank correlation with ACC:", agreement)
    if a.name:
        rows = [
            Cell("cifar10", a.stage, Path(name).parent.name, a.seed).row(
                {"label_free": ways[name], **found[name]}
            )
            for name in order
        ]
        rank = Cell("cifar10", "rank correlation with ACC", a.stage, a.seed).row(agreement)
        record("dpac_cifar10_ways", [*rows, rank], a.name)


def revealed(folder: Path, stage: str) -> dict[str, Any]:
    """Scores of a way, their curve, and what was run where."""
    recipe = tomllib.loads((folder / "recipe.toml").read_text())
    env = json.loads((folder.parent / "env.json").read_text())
    run = {key: env[key] for key in ("command", "gpu", "time")} | {
        "torch": env["packages"]["torch"]
    }
    return {
        **json.loads((folder / f"{stage}.revealed.json").read_text()),
        "curve": curve(folder, stage),
        "settings": {key: recipe[key] for key in ("pretext", "cluster", "self_label")}
        | {"run": run},
    }


def correlations(ways: dict[str, Any], acc: list[float], order: list[str]) -> dict[str, float]:
    """How well each reading, and the ranking, orders the ways as their accuracy does."""
    values = {key: [ways[name][key] for name in order] for key in READINGS}
    values["ranking"] = [-place for place in range(len(order))]
    return {key: round(float(spearmanr(v, acc)[0]), 2) for key, v in values.items()}
