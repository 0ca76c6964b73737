"""Read result files and format their numbers as cells of Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import fmean, median
from typing import Any

from benchmarks import ROOT
from benchmarks.paper.expected import expected as expected
from benchmarks.paper.methods import ONCE as ONCE
from benchmarks.record import Results, Row
from benchmarks.study import percent as percent
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
Run = Row | Mapping[str, Any]  # has scores by name


@cache
def recorded(name: str) -> Results:
    """Return the results of a script, or of SCRIPT/SIZE."""
    script, _, size = name.partition("/")
    found = Results.open(script, size or "full")
    if not found.rows:
        raise FileNotFoundError(f"{found.path} has no rows.")
    return found


def number(name: str, *words: str) -> Any:
    """Return a number of a result file: a setting, or a value of the row with these fields.

    `number("pac_speed", "data=blobs", "method=pac", "mean_acc")`
    """
    *wanted, key = words
    if not wanted:
        return recorded(name).settings[key]
    row = recorded(name).row(**dict(word.split("=", 1) for word in wanted))
    return row.seconds if key == "seconds" else row[key]


def grouped(name: str, *keys: str) -> dict[Any, list[Row]]:
    """Return the rows of a file by the fields `keys`: a string each, or a tuple of several."""
    found: dict[Any, list[Row]] = {}
    for row in recorded(name).rows:
        place = tuple(getattr(row, key) for key in keys)
        found.setdefault(place if len(keys) > 1 else place[0], []).append(row)
    return found


def studied(name: str) -> dict[str, dict[str, list[Row]]]:
    """Return the rows of a file by data set and method."""
    found: dict[str, dict[str, list[Row]]] = {}
    for (data, method), rows in grouped(name, "data", "method").items():
        found.setdefault(data, {})[method] = rows
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


def paper(numbers: Run, name: str = "acc") -> str:
    """Return the paper's number in brackets, with its deviation where it prints one."""
    if name not in numbers:
        return ""
    deviation = f" ± {numbers['std']:.1f}" if name == "acc" and "std" in numbers else ""
    return f" ({numbers[name]:.1f}{deviation})"


def seconds(rows: Sequence[Row]) -> str:
    """Return the median time of some rows, with two digits."""
    value = median(row.seconds for row in rows if row.seconds is not None)
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def made(name: str) -> str:
    """Return the line that names the file, the script and the machines of a result."""
    found = recorded(name)
    here = (
        circumstances(e | {"gpu": e.get("gpu") or found.settings.get("gpu")})
        for e in found.environments
    )
    link = f"[`{found.script}/{found.size}.json`](../{found.path.relative_to(ROOT)})"
    return (
        f"*{link}, by `python -m benchmarks {found.script}`: {' and '.join(dict.fromkeys(here))}.*"
    )


def circumstances(env: Mapping[str, Any]) -> str:
    """Return the machine and the version of torch; the file has the others."""
    if env["python"] is None:
        return f"{env['gpu']}; versions not recorded"
    gpu = f"{env['gpu']}; " if env["gpu"] else ""
    processor = (env["processor"] or env["machine"]).replace("(R)", "")
    torch = env["packages"].get("torch", "not recorded")
    return f"{gpu}{env['cpus']} CPUs ({processor}); torch {torch}"
