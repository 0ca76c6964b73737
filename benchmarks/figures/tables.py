"""Read benchmarks/results/*.json and format its numbers, for make_results.py."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import fmean, median, pstdev
from typing import Any

from benchmarks import ROOT
from benchmarks.paper.expected import expected as expected
from benchmarks.paper.methods import ONCE as ONCE
from benchmarks.study import printed as printed

SETS = {
    "digits": "digits, 1,797 × 64, K = 10",
    "pendigits": "Pendigits, 10,992 × 16, K = 10",
    "isolet": "Isolet, 7,797 × 617, K = 26",
    "mnist-test": "MNIST test images, 10,000 × 784, K = 10",
    "coil100": "COIL-100 at 32 px, 7,178 × 3,072, K = 100",
    "cifar10-simclr": "CIFAR-10, features of another SimCLR, 60,000 × 128, K = 10",
    "blobs": "Gaussian blobs, 1,000,000 × 32, K = 20",
    "seed0": "CIFAR-10, seed 0, ResNet-18",
    "seed0-aware": "CIFAR-10, seed 0, contrast weighted by clusters",
    "seed1": "CIFAR-10, seed 1, ResNet-18",
    "seed2-resnet34": "CIFAR-10, seed 2, ResNet-34",
    "imagenette": "Imagenette, ResNet-18",
    "imagenet-dogs": "ImageNet-Dogs, 2,571 photos",
    "cifar10": "CIFAR-10, 60,000 images",
    "cifar10-byol": "CIFAR-10 (our BYOL), 60,000 × 120, K = 10",
    "cifar100-20": "CIFAR-100-20, 60,000 images",
}
METHODS = {
    "pac": "**PAC**",
    "pac-of-10": "**PAC, `n_init=10`**",
    "k-means": "k-means",
    "k-means-of-10": "k-means, `n_init=10`",
    "mini-batch": "k-means, mini-batches",
    "spkf": "spherical k-means",
    "pam": "k-medoids (FasterPAM)",
    "fcm": "fuzzy c-means",
    "mixture": "Gaussian mixture, diagonal",
    "spectral": "spectral, 10 neighbours",
    "rcc": "RCC",
    "finch": "FINCH",
    "hdbscan": "HDBSCAN",
}
SCORES = ("acc", "nmi", "ari")
Run = Mapping[str, Any]


@cache
def recorded(name: str) -> Any:
    """Return the content of benchmarks/results/NAME.json."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def results(name: str, path: str = "") -> Any:
    """Return the results of a file, or what is at a dotted path of them (`stages.seeds.2`)."""
    value = recorded(name).get("results", recorded(name))
    for key in path.split(".") if path else ():
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def by_set(name: str) -> dict[str, dict[str, list[Run]]]:
    """Return the runs of a file by data set and method."""
    found: dict[str, dict[str, list[Run]]] = {}
    for entry in results(name):
        found.setdefault(entry["data"], {})[entry["method"]] = entry["runs"]
    return found


def studied(name: str) -> dict[str, dict[str, list[Run]]]:
    """Return the runs of a table of the paper by data set and method."""
    found: dict[str, dict[str, list[Run]]] = {}
    for run in recorded(name)["runs"]:
        found.setdefault(run["data"], {}).setdefault(run["method"], []).append(run)
    return found


def methods_of(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the methods of some data sets, in the order of `METHODS`."""
    return [method for method in METHODS if any(method in runs for runs in found.values())]


def short(name: str) -> str:
    """Return the title of a data set without its size."""
    return SETS.get(name, name).partition(",")[0]


def table(header: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the titles in the header are between bars."""
    titles = [title.strip() for title in header.split("|")]
    return "\n".join(f"| {' | '.join(row)} |" for row in [titles, ["---"] * len(titles), *rows])


def percent(*shares: float) -> str:
    """Return shares in percent: one as it is, several as mean ± standard deviation."""
    mean = f"{100 * fmean(shares):.1f}"
    return mean if len(shares) == 1 else f"{mean} ± {100 * pstdev(shares):.1f}"


def score(runs: Sequence[Run], name: str = "acc") -> str:
    """Return one score of some runs."""
    return percent(*(run[name] for run in runs))


def means(runs: Sequence[Run], *names: str) -> str:
    """Return the means of several scores of some runs."""
    return " / ".join(percent(fmean(run[name] for run in runs)) for name in names)


def scored(title: str, lines: dict[str, Sequence[Run]]) -> str:
    """Return ACC, NMI and ARI of some runs per line."""
    rows = ([name, *(score(runs, s) for s in SCORES)] for name, runs in lines.items())
    return table(f"{title} | ACC | NMI | ARI", rows)


def best_in_bold(methods: Sequence[Sequence[Run]]) -> list[str]:
    """Return ACC of some methods, the highest mean in bold."""
    means = [fmean(run["acc"] for run in runs) for runs in methods]
    return [
        f"**{score(runs)}**" if mean == max(means) else score(runs)
        for runs, mean in zip(methods, means, strict=True)
    ]


def paper(numbers: Run, name: str = "acc") -> str:
    """Return the paper's number in brackets, with its deviation where it prints one."""
    if name not in numbers:
        return ""
    deviation = f" ± {numbers['std']:.1f}" if name == "acc" and "std" in numbers else ""
    return f" ({numbers[name]:.1f}{deviation})"


def seconds(runs: Sequence[Run]) -> str:
    """Return the median time of some runs, with two digits."""
    value = median(run["seconds"] for run in runs)
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def made(name: str, where: str = "") -> str:
    """Return the line that names script, machines, versions and commits of a result."""
    source = f"[`{name}.json`](../benchmarks/results/{name}.json)"
    record = results(name, where) if where else recorded(name)
    if "study" in record:
        commits: dict[str, list[str]] = {}
        for env in record["environments"]:
            commits.setdefault(circumstances(env), []).append(env["commit"])
        ran = " and ".join(f"{env}; commit {', '.join(found)}" for env, found in commits.items())
        return f"*{source}, by `python -m benchmarks {record['study']}`: {ran}.*"
    env, found = record["env"], record.get("results")
    gpu = env.get("gpu") or record.get("gpu") or (isinstance(found, dict) and found.get("gpu"))
    commit = record.get("commit") or recorded(name).get("commit") or "not recorded"
    ran = f"{circumstances({**env, 'gpu': gpu})}; commit {commit}"
    return f"*{source}, by `{env['command'][0]}`: {ran}.*"


def circumstances(env: Run) -> str:
    """Return machine and versions."""
    versions = {"Python": env["python"], **env["packages"]}
    packages = ("Python", "numpy", "scikit-learn", "torch", "probagg")
    parts = [
        *([env["gpu"]] if env["gpu"] else []),
        f"{env['cpus']} CPUs ({(env['processor'] or env['machine']).replace('(R)', '')})",
        ", ".join(f"{package} {versions[package]}" for package in packages if package in versions),
    ]
    return "; ".join(parts)
