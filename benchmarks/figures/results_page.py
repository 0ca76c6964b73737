"""Write docs/results.md, benchmarks/notes/tables.md and the README's tables from result files.

    python -m benchmarks results_page [--check]        or `make results`

`results.in.md` and `tables.in.md` are pages with placeholders in double braces:
`{{raw_features}}` calls a function of this file, `{{opa_loop method=pac acc percent}}` formats a
number of a result file (`tables.number`), `{{expected table2/isolet/pac/acc .1f}}` of the paper.
With --check nothing is written, and a page that differs is an error.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from math import exp, log
from pathlib import Path
from statistics import fmean, median

from benchmarks.figures.deep_tables import autoencoder as autoencoder
from benchmarks.figures.deep_tables import exponent as exponent
from benchmarks.figures.deep_tables import on_cifar10_short as on_cifar10_short
from benchmarks.figures.deep_tables import on_digits as on_digits
from benchmarks.figures.deep_tables import online_and_offline as online_and_offline
from benchmarks.figures.tables import (
    METHODS,
    ONCE,
    ROOT,
    SCORES,
    SETS,
    Run,
    expected,
    grouped,
    made,
    means,
    methods_of,
    number,
    paper,
    percent,
    printed,
    recorded,
    score,
    scored,
    seconds,
    short,
    studied,
    table,
)
from benchmarks.record import Row
from benchmarks.studies.pac_select import MADE

DOCS = ROOT / "docs"
STAGES = {"cluster": "dpac-opa", "self_label": "dpac-opa-self-label"}  # stage -> method
SEED_2 = "training/cifar10_resnet34_seed2"
AS_PRINTED = "training/cifar10_paper_seed20"
OF_STARTS = ("kmeans", "pac")
TIMED = ("pendigits", "isolet", "mnist-test", "coil100", "1000000x32x20")
RIVALS = {
    "probagg": "`GraphPAC`",
    "pac": "`PAC`",
    "k-means": "k-means",
    "spectral": "spectral",
    "hdbscan": "HDBSCAN",
    "leiden-k": "Leiden",
    "evoc-k": "EVoC",
}
RIVAL_SETS = {
    "pendigits": SETS["pendigits"],
    "isolet": SETS["isolet"],
    "mnist-test": SETS["mnist-test"],
    "coil100": SETS["coil100"],
    "cifar10-simclr": "CIFAR-10, features of another SimCLR, 10,000 × 128, K = 10",
    "imagenette": "Imagenette, features of a supervised network, 5,000 × 1,280, K = 10",
    "imagenet-dogs": "ImageNet-Dogs, the same network, 2,571 × 1,280, K = 15",
    "digits": SETS["digits"],
    "iris": "iris, 150 × 4, K = 3",
    "wine": "wine, 178 × 13, K = 3",
    "breast-cancer": "breast cancer, 569 × 30, K = 2",
    "blood-cells": "blood cells, 700 × 50, K = 10",
    "moons": "two moons, 2,000 × 2",
    "rings": "two rings, 2,000 × 2",
    "tail": "blobs of 3500/1000/350/150, 5 columns",
    "tail-category": "the same beside a random category",
}


def raw_features() -> str:
    """Return Table 2: ACC of all methods on raw features, the paper's in brackets."""
    return beside_paper("table2", "acc")


def deep_features() -> str:
    """Return Table 3; the paper's numbers only beside features that no label has trained."""
    return beside_paper("table3", "acc", without=("imagenet-dogs",))


def raw_features_beside_acc() -> str:
    """Return NMI, ARI and time of the runs of Table 2."""
    found = studied("table2")
    rows = []
    for method in methods_of(found):
        runs = [found[name].get(method) for name in found]
        cells = (f"{means(r, 'nmi', 'ari')} / {seconds(r)} s" if r else "" for r in runs)
        rows.append([METHODS[method], *cells])
    return table("NMI / ARI / time | " + " | ".join(short(name) for name in found), rows)


def beside_paper(study: str, of: str, without: Sequence[str] = ()) -> str:
    """Return a score of all methods on all data sets, the best in bold, the paper's in brackets.

    Data sets in `without` are not those of the paper.
    """
    found = studied(study)
    best = {
        name: max(fmean(run[of] for run in runs) for runs in methods.values())
        for name, methods in found.items()
    }
    rows = []
    for method in methods_of(found):
        cells = []
        for name, methods in found.items():
            theirs = "" if name in without else paper(printed(study, name, method) or {}, of)
            runs = methods.get(method)
            if runs is None:
                cells.append(f"not run{theirs}")
                continue
            bold = "**" if fmean(run[of] for run in runs) == best[name] else ""
            fewer = f", n = {len(runs)}" if 3 < len(runs) < 10 and method not in ONCE else ""
            cells.append(f"{bold}{score(runs, of)}{bold}{fewer}{theirs}")
        rows.append([METHODS[method], *cells])
    return table(f"{of.upper()} | " + " | ".join(short(name) for name in found), rows)


def speed() -> str:
    """Return the time of PAC beside that of k-means."""
    rows = []
    for row in recorded("pac_speed").of(method="pac"):
        (kmeans,) = recorded("pac_speed").of(data=row.data, method="k-means")
        theirs = expected("table2").get(row.data, {}).get("pac", {}).get("seconds")
        times = [f"{row.seconds:.2g} s", f"{kmeans.seconds:.2g} s", f"{row['ratio']:.2f}"]
        printed = f"{theirs:,.1f} s" if theirs else ""
        rows.append([SETS[row.data], str(row.settings["n"]), *times, printed])
    return table(" | runs | PAC | k-means | ratio | PAC in the paper", rows)


def largest_difference() -> str:
    """Return the largest difference between PAC and Algorithm 1."""
    return f"{max(row['max_diff'] for row in recorded('pac_equality').rows):.0e}"


def order() -> str:
    """Return ACC by order of the rows and number of starts."""
    found: dict[str, list[str]] = {}
    for (data, _), rows in grouped("pac_order", "data", "setting").items():
        found.setdefault(data, []).append(percent(*(row["acc_percent"] / 100 for row in rows)))
    header = " | random order | file order | random order, `n_init=3` | random order, `n_init=10`"
    return table(header, ([SETS[name], *row] for name, row in found.items()))


def selection() -> str:
    """Return how often the interval of `select_n_clusters` holds the number of groups."""
    rows = []
    for name, runs in grouped("pac_select", "data").items():
        if runs[0]["truth"] > 1:
            truths = sorted({run["truth"] for run in runs})
            ends = f"{truths[0]} to {truths[-1]}" if len(truths) > 1 else str(truths[0])
            title = SETS.get(name, name).partition(",")[0]
            learned = sum(run["learned"] for run in runs)
            rows.append([title, ends, str(learned), str(len(runs) - learned), *coverage(runs)])
    header = "data | groups | samples that learn | that report | interval holds | its width"
    return table(f"{header} | chosen within 10 % | CPU time", rows)


def coverage(runs: Sequence[Row]) -> list[str]:
    """Return how many intervals hold, their mean width, how many choices are near, the time."""
    holds = sum(run["holds"] for run in runs)
    width = exp(fmean(log(run["interval"][1] / run["interval"][0]) for run in runs))
    near = sum(abs(run["chosen"] - run["truth"]) <= max(1, run["truth"] // 10) for run in runs)
    took = fmean(run["cpu_seconds"] for run in runs)
    return [f"{holds} of {len(runs)}", f"x {width:.1f}", f"{near}", f"{took:.1f} s"]


def selection_in_short() -> str:
    """Return the coverage on what learns and on what reports only."""
    groups: dict[str, list[Row]] = {}
    for run in recorded("pac_select").rows:
        if run["truth"] > 1:
            kind = "made-up groups" if run.data in MADE else "classes of real sets"
            groups.setdefault(f"{kind}, {'learns' if run['learned'] else 'reports'}", []).append(
                run
            )
    rows = []
    for name, runs in sorted(groups.items()):
        sets = f"{len({run.data for run in runs})} sets, {len(runs)} samples"
        share = f"{fmean(run['holds'] for run in runs):.0%}"
        rows.append([name, sets, share, *coverage(runs)[1:3]])
    return table(" | | interval holds | its mean width | chosen within 10 %", rows)


def clouds_without_structure() -> str:
    """Return how many data sets without clusters are recognised as such."""
    clouds = [run for run in recorded("pac_select").rows if run["truth"] == 1]
    found = sum(run["reason"].startswith("No clear structure") for run in clouds)
    return f"{found} of {len(clouds)}"


def heads() -> str:
    """Return a linear head trained by OPA beside other methods."""
    methods = ("OPAHead", "PAC", "k-means", "Gaussian mixture (diagonal)", "spectral")
    rows = []
    for name, runs in studied("opa_head").items():
        shown = (runs[method] for method in methods)
        cells = (f"{score(r)} / {means(r, 'nmi', 'ari')} / {seconds(r)} s" for r in shown)
        rows.append([SETS[name], *cells])
    return table("ACC / NMI / ARI / time | " + " | ".join(methods), rows)


def sphere() -> str:
    """Return ACC and sharpness of OPA by batch size and by m."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in recorded("opa_sphere").of(method="opa"):
        m, batch = row.settings["m"], row.settings["batch"]
        found.setdefault((str(m), f"{batch:,}"), []).append(row)
    lines = (
        [*setting, score(rows), f"{fmean(row['sharpness'] for row in rows):.2f}"]
        for setting, rows in found.items()
    )
    return table("m | batch | ACC | sharpness", lines)


def batches() -> str:
    """Return ACC and stability of three losses by batch size."""
    rows = (
        [*setting, score(runs), f"{fmean(run['stability'] for run in runs):.2f}"]
        for setting, runs in grouped("opa_batch", "method", "setting").items()
    )
    return table("loss | batch | ACC | stability", rows)


def loop() -> str:
    """Return whether a classifier trained by OPA keeps the clusters that it starts with."""
    rows = []
    for method, runs in grouped("opa_loop", "method", "setting").items():
        if method[0] != "opa":
            continue
        rate, balance, stratified = runs[0].settings.values()
        first = [run["curve"][0] for run in runs]
        cells = (
            [percent(epoch["targets"]) for epoch in first],
            [f"{epoch['kl']:.2f}" for epoch in first],
            [percent(run["kept"]) for run in runs],
            [percent(run["acc"]) for run in runs],
        )
        batches = "stratified" if stratified else "random"
        rows.append([str(rate), str(balance), batches, *map(", ".join, cells)])
    header = "learning rate | `balance` | batches | targets equal to PAC's in the first epoch, %"
    return table(
        f"{header} | KL in the first epoch | clusters kept after four epochs, % | ACC", rows
    )


def digits() -> str:
    """Return DPAC on digits, and PAC on its features and on the pixels."""
    runs = recorded("dpac_digits").rows
    times = [run.seconds for run in runs if run.seconds is not None]
    lowest = percent(min(run["acc"] for run in runs))
    lines = {
        f"DPAC (lowest ACC {lowest}), {min(times):.0f} to {max(times):.0f} s": runs,
        "PAC on its features": [run["pac_on_features"] for run in runs],
        "PAC on the pixels": [run["pac_on_pixels"] for run in runs],
    }
    return scored("digits, 1,797 images of 8 × 8", lines)


def cifar10() -> str:
    """Return all recorded runs on CIFAR-10 from scratch, a row per seed, and the paper's."""
    rows = []
    for seed, what, cluster, self_label, epochs in cifar10_runs():
        number = "".join(filter(str.isdigit, seed.partition(",")[0]))
        starts = cifar10_starts(int(number))
        ends = [f"{percent(self_label['acc'])}{epochs}", percent(cluster["knn"])]
        rows.append([seed, what, *starts, three_scores(cluster), *ends])
    seed36 = recorded("training/cifar10_byol_seed36")
    teacher = f"(a teacher: {percent(seed36.row(method='self_label')['acc'])})"
    prototypes = "the same, [prototypes by PAC](../benchmarks/notes/prototypes.md) in the last 110"
    for way, what, last in (
        ("plain", "BYOL, ResNet-18, 340", teacher),
        ("prototypes", prototypes, ""),
    ):
        cluster = seed36.row(method="cluster", setting=way)
        rows.append(
            ["36, blind", what, "", "", "", three_scores(cluster), last, percent(cluster["knn"])]
        )
    cluster = recorded(AS_PRINTED).row(method="cluster", setting="")
    what = "ResNet-34, 1,000 (`cifar10/paper`, as printed)"
    ends = [three_scores(cluster), "not run", percent(cluster["knn"])]
    rows.append(["20", what, *cifar10_starts(20), *ends])
    opa, last = (expected("table4", "cifar10", method) for method in STAGES.values())
    theirs = " / ".join(f"{opa[of]:.1f}" for of in SCORES)
    kmeans, pac = (paper(expected("table3", "cifar10", m)).strip(" ()") for m in ("k-means", "pac"))
    printed_row = ["the paper", "ResNet-34, 1,000", kmeans, pac, "", theirs]
    rows.append([*printed_row, f"{last['acc']:.1f}", ""])
    header = "seed | network, pre-training | k-means | PAC | smoothed | OPA: ACC / NMI / ARI"
    return table(f"{header} | self-labelled | 20-NN", rows)


def three_scores(run: Run) -> str:
    """Return ACC / NMI / ARI in percent."""
    return " / ".join(percent(run[of]) for of in ("acc", "nmi", "ari"))


def cifar10_runs() -> Iterator[tuple[str, str, Run, Run, str]]:
    """Yield seed, network, the rows of clustering and self-labelling, and a remark on epochs."""
    whole = (
        ("2", "ResNet-34, 380 epochs (`cifar10/fast`)", "resnet34_seed2", ""),
        ("7, blind", "the same", "seed7", " (epoch 40 of 60)"),
        ("1", "ResNet-18, 500", "resnet18_seed1", ""),
        ("14, blind", "BYOL, ResNet-18, 580", "byol_seed14", ""),
        ("12, blind", "BYOL, ResNet-18, 270", "byol_seed12", ""),
        ("11", "BYOL, ResNet-18, 450", "byol_seed11", ""),
        ("35, blind", "BYOL, ResNet-18, 400", "byol_seed35", " (a teacher: 91.8)"),
        ("37, blind", "BYOL, ResNet-18, 400", "byol_seed37", " (a teacher: 87.3)"),
        ("31, blind", "BYOL as in ProPos, 442", "byol_seed31", " (matched labels: 90.4)"),
    )
    for seed, what, name, epochs in whole:
        found = {row.method: row for row in recorded(f"training/cifar10_{name}").rows}
        yield seed, what, found["cluster"], found["self_label"], epochs
    cluster = recorded("training/cifar10_seed13").row(method="cluster")
    last = recorded("training/ways_self_label_seed13").row(setting="stock")
    yield "13, blind", "ResNet-18, 400", cluster, last, ""
    cluster = recorded("training/ways_cluster_seed0").row(setting="long")
    last = recorded("training/ways_self_label_seed0").row(setting="nS")
    yield "0, developed on", "ResNet-18, 385", cluster, last, ""


def cifar10_starts(seed: int) -> list[str]:
    """Return ACC of k-means, of PAC and of the smoothed start on the features of a seed."""
    names = {2: "resnet34_seed2", 7: "seed7", 1: "resnet18_seed1", 0: "seed0", 20: "paper_seed20"}
    name = names.get(seed, f"byol_seed{seed}" if seed != 13 else "seed13")
    cells = ["", ""]
    for row in recorded(f"training/cifar10_{name}").rows:
        starts = row.values if row.method == "table3" else row.get("table3")
        if starts and "kmeans" in starts:
            both = ([100 * run["acc"] for run in starts[of]] for of in OF_STARTS)
            cells = [f"{min(each):.1f} to {max(each):.1f}" for each in both]
        elif starts:
            kinds = ((starts[f"{of}_mean_acc"], starts[f"{of}_deviation"]) for of in OF_STARTS)
            cells = [f"{100 * mean:.1f} ± {100 * std:.1f} (3 starts)" for mean, std in kinds]
    smoothed = {0: "seed0", 1: "seed1", 2: "seed2-resnet34"}.get(seed)
    if smoothed:
        chosen = max(recorded("neighbours").of(data=smoothed), key=lambda run: run["modularity"])
        return [*cells, percent(chosen["asked"])]
    start = [row for row in recorded(f"training/cifar10_{name}").rows if row.method == "start"]
    if seed == 13:
        return [*cells, percent(start[0]["chosen_smoothed"])]
    if seed == 31:
        (taken,) = (row for row in start if row["chosen"])
        return [*cells, percent(taken["selected_smoothed"]["acc"])]
    return [*cells, ""]


def cifar10_minutes(what: str) -> str:
    """Return the minutes of seed 2: of its epochs alone, or as it ran."""
    epochs = {"pretrain": 380, "cluster": 60, "self_label": 60}
    stages = [recorded(SEED_2).row(method=stage)["label_free"] for stage in epochs]
    if what == "epochs":
        each = [stage["last_epoch"]["seconds"] for stage in stages]
        total = sum(n * seconds for n, seconds in zip(epochs.values(), each, strict=True))
    else:
        total = sum(stage["seconds"] for stage in stages)
    return f"{total / 60:.0f}"


def imagenette() -> str:
    """Return DPAC on Imagenette from scratch."""
    found = {row.method: row for row in recorded("training/imagenette").rows}
    starts = found["pretrain"]["table3"]
    lines = {
        "k-means on the pre-trained features, 5 starts": starts["kmeans"],
        "PAC on the pre-trained features, 5 starts": starts["pac"],
        "DPAC with OPA, 800 + 60 epochs": [found["cluster"]],
        "then self-labelling, 60 epochs": [found["self_label"]],
    }
    return scored("Imagenette, 5,000 photos at 96 px, seed 0", lines)


def smoothing() -> str:
    """Return ACC of PAC, then of its probabilities smoothed over the kNN graph."""
    rows = []
    for data, runs in grouped("neighbours", "data").items():
        cells = [[run for run in runs if run.method == "auto"]]
        for rule in ("lowest", "annealed", "most modular"):
            cells.append([run for run in runs if rule in run["chosen_by"]])
        shown = (f"{score(some, 'pac')} → {score(some, 'asked')}" for some in cells)
        rows.append([SETS[data].partition(", K")[0], *shown])
    header = " | ten starts | lowest objective of the ten | lower of two annealed starts"
    return table(f"{header} | highest modularity of the twelve", rows)


def readme() -> str:
    """Return the README's tables: GraphPAC and PAC beside others, and the fast recipes."""
    starts = recorded(SEED_2).row(method="table3")
    smoothed = cifar10_starts(2)[2]
    digits_runs = recorded("dpac_digits").rows
    runs = {seed: (opa, last) for seed, _, opa, last, _ in cifar10_runs()}
    fast = [runs.pop(seed) for seed in ("2", "7, blind")]
    ends = [sorted(100 * run[i]["acc"] for run in runs.values()) for i in (0, 1)]
    opa, last = (f"{e[0]:.1f} to {e[-1]:.1f}" for e in ends)
    both = [", ".join(percent(run[i]["acc"]) for run in fast) for i in (0, 1)]
    paper_opa, paper_last = (
        f"{expected('table4', 'cifar10', method, 'acc'):.1f}" for method in STAGES.values()
    )
    coarse = studied("table4")["cifar100-20"]
    deep = [
        ["digits, 1,797 images: `digits/fast`, 5 seeds", score(digits_runs), ""],
        [
            "CIFAR-10: k-means on our pre-trained features, 5 starts",
            score(starts["kmeans"]),
            "76.8 ± 6.8",
        ],
        ["CIFAR-10: PAC on them, 5 starts", score(starts["pac"]), "87.1"],
        ["CIFAR-10: PAC + smoothing, the start of the fast recipe", smoothed, ""],
        ["CIFAR-10: `cifar10/fast`, seeds 2 and 7: OPA", both[0], ""],
        ["then self-labelled (seed 7: epoch 40 of 60)", both[1], ""],
        [
            f"CIFAR-10, other networks and epochs, {len(runs)} seeds: OPA; self-labelled",
            f"{opa}; {last}",
            "",
        ],
        [
            "CIFAR-10: the paper's recipe (`cifar10/paper`), 1 seed: OPA; self-labelled",
            f"{percent(recorded(AS_PRINTED).row(method='cluster', setting='')['acc'])}; not run",
            f"{paper_opa}; {paper_last}",
        ],
        ["CIFAR-100-20: `cifar100-20/fast`, 1 seed: OPA", score(coarse["dpac-opa"]), ""],
        [
            'then self-labelled; its own diagnosis is "undecided"',
            score(coarse["dpac-opa-self-label"]),
            "",
        ],
        ["CIFAR-100-20: the paper's recipe: OPA; self-labelled", "not run", "51.6; 55.5"],
    ]
    second = table("ACC, %, networks trained from scratch | here | the paper", deep)
    fits = recorded("many_clusters")
    pairs = [[fits.row(data=d, method=m).seconds for m in ("pac", "k-means")] for d in TIMED]
    ratios = [pac / kmeans for pac, kmeans in pairs]
    times = studied("graph_cost")
    small = [name for name, runs in times.items() if len(runs["pac"]) > 1]
    of_small = [times[name] for name in small]
    pac, graph = (times_of_kmeans(of_small, method) for method in ("pac", "graph-pac"))
    large = [cpu_seconds(times[name]["graph-pac"]) for name in times if name not in small]
    timed = (
        f"`PAC.fit` took {min(ratios):.1f} to {max(ratios):.1f} times the time of "
        "`KMeans(n_init=1)` on Pendigits,\nIsolet, MNIST-10k, COIL-100 and a million rows of 32 "
        f"columns. On {len(small)} sets of 150 to 10,992 rows it took {pac} times and\n`GraphPAC` "
        f"{graph} times (CPU seconds of one thread).\n"
        f"`GraphPAC` takes {min(large):.0f} to {max(large):.0f} CPU seconds for 100,000 rows of 50 "
        "columns."
    )
    return f"{rivals()}\n\n{second}\n\n{timed}\n"


def cpu_seconds(runs: Sequence[Run]) -> float:
    """Return the median of some runs."""
    return median(run["cpu_seconds"] for run in runs)


def times_of_kmeans(sets: Sequence[dict[str, list[Row]]], method: str) -> str:
    """Return the smallest and the largest time of a method, in times of k-means."""
    ratios = [cpu_seconds(runs[method]) / cpu_seconds(runs["k-means"]) for runs in sets]
    return f"{min(ratios):.0f} to {max(ratios):.0f}"


def rivals() -> str:
    """Return the mean ACC of each method on each set, the best in bold, and the mean of sets."""
    found, rows = studied("rivals"), []
    for name, title in RIVAL_SETS.items():
        of_set = [_mean_acc(found[name].get(method, [])) for method in RIVALS]
        best = f"{max(value for value in of_set if value is not None):.1f}"
        cells = ("" if value is None else f"{value:.1f}" for value in of_set)
        rows.append([title, *(f"**{cell}**" if cell == best else cell for cell in cells)])
    shared = [runs for runs in found.values() if all(method in runs for method in RIVALS)]
    means = (fmean(100 * fmean(r["acc"] for r in runs[m]) for runs in shared) for m in RIVALS)
    rows.append([f"mean of the {len(shared)} sets that all have", *(f"{m:.1f}" for m in means)])
    return table(" | ".join(["ACC, %", *RIVALS.values()]), rows)


def _mean_acc(runs: Sequence[Run]) -> float | None:
    return 100 * fmean(run["acc"] for run in runs) if runs else None


def rivals_beside_acc() -> str:
    """Return ACC with its deviation, NMI, ARI and CPU seconds of the runs of `rivals`."""
    rows = []
    for (data, method), runs in grouped("rivals", "data", "method").items():
        scores = (score(runs, name) for name in SCORES)
        clusters = f"{fmean(run['clusters'] for run in runs):.0f}"
        rows.append([data, method, str(len(runs)), *scores, clusters, f"{cpu_seconds(runs):.2g}"])
    rows.sort(key=lambda row: (list(RIVAL_SETS).index(row[0]), row[1]))
    return table("data | method | n | ACC | NMI | ARI | clusters | CPU s", rows)


def fill(placeholder: re.Match[str]) -> str:
    """Return what a placeholder stands for: a function's text or a formatted number."""
    name, *arguments = placeholder[1].split()
    if name == "made":
        return made(*arguments)
    if name == "expected":
        return format(expected(*arguments[0].split("/")), arguments[1])
    if name in globals():
        return globals()[name](*arguments)
    *words, form = arguments
    value = number(name, *words)
    return percent(value) if form == "percent" else format(value, form)


def pages() -> dict[Path, str]:
    """Return the text that each generated page should have."""
    here, start = Path(__file__).parent, ROOT / "README.md"
    block = re.compile(r"(<!-- results.*?-->\n).*?(<!-- end -->)", re.S)
    templates = {
        DOCS / "results.md": here / "results.in.md",
        ROOT / "benchmarks" / "notes" / "tables.md": here / "tables.in.md",
    }
    return {
        **{
            page: re.sub(r"\{\{(.+?)\}\}", fill, template.read_text())
            for page, template in templates.items()
        },
        start: block.sub(lambda found: f"{found[1]}\n{readme()}\n{found[2]}", start.read_text()),
    }


def main() -> None:
    """Write the pages, or check that they are written."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail if a page is not current")
    check = parser.parse_args().check
    stale = [
        path for path, text in pages().items() if not path.exists() or path.read_text() != text
    ]
    if check and stale:
        sys.exit(f"{', '.join(path.name for path in stale)} differ: run make results and commit")
    for path in stale:
        path.write_text(pages()[path])
        print(f"written to {path}")
