"""Write docs/results.md and the README's table from the result files.

    python -m benchmarks results_page [--check]        or `make results`

`results.in.md` is the page with placeholders in double braces: `{{raw_features}}` calls a
function of this file, `{{pac_speed data=blobs method=pac mean_acc percent}}` formats a number of a
result file (`tables.number`), and `{{expected table2/isolet/pac/acc .1f}}` one of the paper's.
With --check nothing is written, and a page that differs is an error.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

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
    best_in_bold,
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

DOCS = ROOT / "docs"
STAGES = {"cluster": "dpac-opa", "self_label": "dpac-opa-self-label"}  # stage -> method
DPAC = {"dpac-opa": "DPAC", "dpac-opa-self-label": "DPAC, self-labelled"}
BASELINES = ("pac", "k-means", "k-means-of-10", "spectral")
SEED_2 = "training/cifar10_resnet34_seed2"
MADE_UP = ("blobs", "blobs of many shapes", "clouds")


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
    """Return the number of clusters that `select_n_clusters` chooses on data with known classes."""
    rows = []
    for name, n, runs in selections():
        if name not in MADE_UP:
            chosen = ", ".join(
                f"{run['chosen']} ({run['interval'][0]} to {run['interval'][1]})" for run in runs
            )
            took = f"{fmean(run['cpu_seconds'] for run in runs):.0f} s"
            title = SETS.get(name, name).partition(",")[0]
            rows.append([title, f"{n:,}", str(runs[0]["truth"]), chosen, took])
    return table("data | rows | classes | chosen (interval), by seed | CPU time", rows)


def selections() -> Iterator[tuple[str, int, list[Row]]]:
    """Yield the rows of `select_n_clusters` by data set and number of rows, which increases."""
    for name, runs in grouped("pac_select", "data").items():
        now = [run for run in runs if run.method == "now"]
        for n in sorted({run.settings["rows"] for run in now}):
            yield name, n, [run for run in now if run.settings["rows"] == n]


def selection_on_blobs() -> str:
    """Return how often the true number of blobs is chosen."""
    rows = []
    for name, n, runs in selections():
        if name in MADE_UP[:2]:
            exact = sum(run["chosen"] == run["truth"] for run in runs)
            numbers = ", ".join(str(K) for K in sorted({run["truth"] for run in runs}))
            took = f"{fmean(run['cpu_seconds'] for run in runs):.0f} s"
            rows.append([name, f"{n:,}", numbers, f"{exact} of {len(runs)}", took])
    return table("data | rows | K | exact | CPU time", rows)


def clouds_without_structure() -> str:
    """Return how many data sets without clusters are recognised as such."""
    clouds = recorded("pac_select").of(data="clouds", method="now")
    return f"{sum(not cloud['clear'] for cloud in clouds)} of {len(clouds)}"


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


def cost() -> str:
    """Return time and memory of OPALoss beside those of a cross-entropy and a product."""
    rows = []
    for name in ("opa_cost/cpu", "opa_cost/cuda"):
        for found in recorded(name).rows:
            times = [f"{found[f'{m}_ms']:.2g} ms" for m in ("opa", "cross_entropy_and_product")]
            peaks = (found[f"{m}_peak_mib"] for m in ("opa", "cross_entropy_and_product"))
            memory = [f"{peak:.1f} MiB" if peak else "" for peak in peaks]
            where = recorded(name).settings.get("gpu", "one CPU thread")
            ratio = f"{found['ratio']:.1f}"
            rows.append([f"{where}, {found.setting}", *times, ratio, *memory])
    header = " | `OPALoss` | cross-entropy and product | ratio | peak memory of `OPALoss`"
    return table(f"{header} | of the other", rows)


def photos() -> str:
    """Return the clustering of Imagenette's photos on the features of a frozen network."""
    titles = ("PAC", "OPA head", "k-means, one start", "spectral clustering, 10 neighbours")
    methods = ("pac", "opa", "kmeans", "spectral")
    runs = [recorded("photos_imagenette").of(method=method, setting="") for method in methods]
    lines = {f"{t}, {seconds(r)} s": r for t, r in zip(titles, runs, strict=True)}
    return scored("Imagenette, 5,000 × 1,280 features", lines)


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
    """Return DPAC on CIFAR-10 from scratch, the paper's numbers in brackets."""
    kmeans = expected("table3", "cifar10", "k-means")
    pac = {"acc": expected("table3", "cifar10", "pac", "acc")}
    without_cr = expected("table5c", "cifar10", "dpac-jpac", "without-cr")
    opa, self_label = (expected("table4", "cifar10", method) for method in STAGES.values())
    new = {row.method: row for row in recorded(SEED_2).rows}
    old = {row.method: row for row in recorded("training/cifar10_resnet18_seed1").rows}
    j_pac = recorded("dpac_cifar10_ways/cluster_resnet34_seed2").row(setting="jpac")
    lines = (
        ("k-means on the pre-trained features, 5 starts", new["table3"]["kmeans"], kmeans),
        ("PAC on the pre-trained features, 5 starts", new["table3"]["pac"], pac),
        ("DPAC with OPA, 380 + 60 epochs", [new["cluster"]], opa),
        ("then self-labelling, 60 epochs", [new["self_label"]], self_label),
        ("DPAC with J_pac, 380 + 20 epochs", [j_pac], without_cr),
        ("ResNet-18, seed 1: OPA, 500 + 60 epochs", [old["cluster"]], opa),
        ("then self-labelling, 60 epochs", [old["self_label"]], self_label),
    )
    rows = (
        [title, *(score(runs, s) + paper(printed, s) for s in SCORES)]
        for title, runs, printed in lines
    )
    return table("ResNet-34, seed 2, except where noted | ACC | NMI | ARI", rows)


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


def pretraining_speed() -> str:
    """Return images per second of pre-training, its limit and a classic loader's."""
    rows = []
    for backbone, title in (("resnet18", "ResNet-18"), ("resnet34", "ResNet-34")):
        found = recorded("dpac_speed").row(method=backbone)
        rates = (f"{found[key]:,.0f}" for key in ("images_per_second", "limit", "classic"))
        share = f"{percent(found['views_share'])} %"
        rows.append([title, *rates, f"{found['times_classic']:.1f}", share])
    header = "images per second | probagg | forward and backward alone | Pillow in 16 workers"
    return table(f"{header} | probagg / Pillow | views, share of the step", rows)


def readme() -> str:
    """Return the README's table, with baselines on the same rows, and the time of PAC."""
    rows = []
    for name, runs in studied("table2").items():
        theirs = expected("table2", name, "pac")
        cells = best_in_bold([runs[method] for method in BASELINES], theirs["acc"])
        size = " (at 128 px)" if name == "coil100" else ""
        rows.append([SETS[name], "PAC", *cells, paper(theirs).strip(" ()") + size])
    photos, ten = recorded("photos_imagenette"), recorded("table3").of(method="k-means-of-10")
    kmeans, spectral = (photos.of(method=m, setting="") for m in ("kmeans", "spectral"))
    of_ten = [row for row in ten if row.data == "imagenette"]
    cells = best_in_bold([photos.of(method="pac", setting=""), kmeans, of_ten, spectral])
    rows.append(["Imagenette, 5,000 photos, features of a frozen network", "PAC", *cells, ""])
    pixels = studied("opa_head")["digits"]
    cells = best_in_bold([recorded("dpac_digits").rows, pixels["k-means"], [], pixels["spectral"]])
    rows.append(["digits, 1,797 images, 5 seeds", "DPAC", *cells, ""])
    rows += readme_cifar10([row for row in ten if row.data == "cifar10"])
    for method, runs in studied("table4")["cifar100-20"].items():
        theirs = expected("table4", "cifar100-20", method, "acc")
        cells = best_in_bold([runs, runs[0]["pretrained"]["table3"]["kmeans"], [], []], theirs)
        undecided = " (diagnosis: undecided)" if runs[0]["state"] == "undecided" else ""
        title = "CIFAR-100, its 20 super-classes, 60,000 images, 1 seed"
        rows.append([title, DPAC[method], cells[0] + undecided, *cells[1:], f"{theirs:.1f}"])
    ratios = [row["ratio"] for row in recorded("pac_speed").of(method="pac")]
    time = f"{min(ratios):.1f} to {max(ratios):.1f} times the time of `KMeans(n_init=1)`"
    titles = "ACC, % | method | probagg | k-means | k-means, `n_init=10` | spectral | the paper"
    timed = f"`PAC.fit` took {time} on these matrices and on a million rows."
    return f"{table(titles, rows)}\n\n{timed}\n"


def readme_cifar10(of_ten: Sequence[Run]) -> list[list[str]]:
    """Return the rows of CIFAR-10: PAC, smoothed, DPAC of all recorded seeds, the paper's recipe.

    The best of ten starts of k-means is on the SimCLR features of another network.
    """
    new, blind = recorded(SEED_2), recorded("training/cifar10_seed7")
    features, smoothed = new.row(method="table3"), recorded("neighbours").of(data="seed2-resnet34")
    beside = [score(features["kmeans"]), f"{score(of_ten)} (other features)", ""]
    (start,) = (row for row in smoothed if "most modular" in row["chosen_by"])
    theirs = {m: f"{expected('table4', 'cifar10', m, 'acc'):.1f}" for m in STAGES.values()}
    printed = f"{expected('table3', 'cifar10', 'pac', 'acc'):.1f}"
    first = "CIFAR-10, 60,000 images, ResNet-34"
    pac = f"{first}, features of seed 2"
    rows = [
        [pac, "PAC, 5 starts", score(features["pac"]), *beside, printed],
        [pac, "PAC, smoothed over the kNN graph", percent(start["asked"]), *beside, ""],
    ]
    for stage, method in STAGES.items():
        early = " (epoch 40 of 60)" if stage == "self_label" else ""
        acc = score([new.row(method=stage), blind.row(method=stage)]) + early
        title = f"{DPAC[method]}, our fast recipe"
        rows.append([f"{first}, seeds 2 and 7", title, acc, *beside, theirs[method]])
    rows.append([first, "DPAC, the paper's recipe", "not run", "", "", "", theirs["dpac-opa"]])
    ways = recorded("dpac_cifar10_ways/self_label_seed13")
    seed_13 = (recorded("training/cifar10_seed13").row(method="cluster"), ways.row(setting="stock"))
    others = {
        "ResNet-18, seeds 1 and 13": [both_stages("cifar10_resnet18_seed1"), seed_13],
        "ResNet-18, pre-trained by BYOL, seeds 11, 12 and 14": [
            both_stages(f"cifar10_byol_seed{seed}") for seed in (11, 12, 14)
        ],
    }
    for title, runs in others.items():
        acc = ", ".join(f"{score([end])} → {score([labelled])}" for end, labelled in runs)
        rows.append([f"CIFAR-10, {title}", "DPAC → self-labelled", acc, "", "", "", ""])
    return rows


def both_stages(name: str) -> tuple[Row, Row]:
    """Return the ends of clustering and of self-labelling of a run of `training`."""
    cluster, self_label = (recorded(f"training/{name}").row(method=stage) for stage in STAGES)
    return cluster, self_label


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
    page, start = Path(__file__).with_name("results.in.md"), ROOT / "README.md"
    block = re.compile(r"(<!-- results.*?-->\n).*?(<!-- end -->)", re.S)
    return {
        DOCS / "results.md": re.sub(r"\{\{(.+?)\}\}", fill, page.read_text()),
        start: block.sub(lambda found: f"{found[1]}\n{readme()}\n{found[2]}", start.read_text()),
    }


def main() -> None:
    """Write the pages, or check that they are written."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail if a page is not current")
    check = parser.parse_args().check
    stale = [path for path, text in pages().items() if path.read_text() != text]
    if check and stale:
        sys.exit(f"{', '.join(path.name for path in stale)} differ: run make results and commit")
    for path in stale:
        path.write_text(pages()[path])
        print(f"written to {path}")
