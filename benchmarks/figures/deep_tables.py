"""Tables 4 to 7 as they ran, in Markdown."""

from __future__ import annotations

from statistics import fmean

from benchmarks.figures.tables import Run, expected, grouped, percent, printed, score, table

CELL = ("data", "method", "setting")
FEATURES = {
    "cifar10-simclr": "CIFAR-10, SimCLR features",
    "mnist-test": "MNIST test images",
    "digits": "digits",
}
UNIFORM = 0.101  # mean largest probability of ten clusters, below which none has formed
TARGETS = {
    "dpac-opa": "OPA",
    "offline-pac": "PAC",
    "offline-fcm": "FCM",
    "offline-k-means": "k-means",
}
INTERVALS = {
    "online": "each batch",
    "200": "every epoch",
    "20": "every 10 epochs",
    "1": "before the first epoch",
}

VARIANTS = {
    "": "`mnist/fast`: the classifier starts from PAC's clusters",
    "self-label": "then 30 epochs of self-labelling",
    "random-start": "from a random classifier, as in the paper",
    "random-start-longer": "the same, 150 + 100 epochs",
    "random-start-convolutions": "the same with a convolutional encoder",
    "random-start-contrast": "the same, pre-trained by contrast in place of reconstruction",
}


def exponent() -> str:
    """Return ACC by m beside the predicted critical m, and "none" where no cluster formed."""
    found = grouped("table6/small", *CELL)
    values = list(expected("table6", "cifar10", "dpac-opa"))
    settings, rows = (*values, "below", "above"), []
    for data, title in FEATURES.items():
        if any((data, "opa-head", m) not in found for m in settings):
            continue  # not run whole
        cells = [_formed(found[data, "opa-head", m]) for m in settings]
        critical = found[data, "opa-head", values[0]][0]["critical_m"]
        rows.append([title, f"{critical:.3f}", *cells])
    header = " | ".join(["ACC", "critical m", *values, "0.9 of it", "1.1 of it"])
    return table(header, rows)


def _formed(runs: list[Run]) -> str:
    if max(run["sharpness"] for run in runs) < UNIFORM:
        return "none"
    return score(runs) + (" (weak)" if all(run["state"] == "uniform" for run in runs) else "")


def online_and_offline() -> str:
    """Return ACC and seconds by the targets and how often they are computed."""
    rows = []
    for (_, method, setting), runs in grouped("table7/small", *CELL).items():
        theirs = expected("table7", "stl10", method, setting)
        rows.append(
            [
                targets_title(method, setting),
                score(runs),
                f"{fmean(run.seconds or 0.0 for run in runs):.0f}",
                f"{theirs['acc']:.1f}",
                f"{theirs['hours']:.1f}",
            ]
        )
    header = "targets | ACC, digits | seconds | the paper: ACC, STL-10 | hours"
    return table(header, rows)


def on_digits() -> str:
    """Return ACC of Tables 4, 5a and 5c on digits, and the paper's on CIFAR-10."""
    rows = []
    for name in ("table4", "table5a", "table5c"):
        for (_, method, setting), runs in grouped(f"{name}/small", *CELL).items():
            theirs = printed_acc(name, method, setting)
            rows.append([row_title(name, method, setting), str(len(runs)), score(runs), theirs])
    return table("method | seeds | ACC, digits | the paper: ACC, CIFAR-10", rows)


def on_cifar10_short() -> str:
    """Return the runs of Tables 4 to 7 at size short, and the paper's ACC."""
    rows = []
    for name in ("table4", "table5a", "table5c", "table6", "table7"):
        for (_, method, setting), (run, *_more) in grouped(f"{name}/short", *CELL).items():
            before = fmean(pac["acc"] for pac in run["pretrained"]["table3"]["pac"])
            scores = " / ".join(percent(run[of]) for of in ("acc", "nmi", "ari"))
            if run["state"] == "uniform":
                scores = "none"
            theirs = "" if name == "table7" else printed_acc(name, method, setting)  # of STL-10
            cells = [percent(before), scores, percent(run["knn"]), theirs]
            rows.append([row_title(name, method, setting), *cells])
    return table("method | PAC before | ACC / NMI / ARI | 20-NN | the paper: ACC", rows)


def autoencoder() -> str:
    """Return Table 5b and its variants."""
    rows = []
    found = grouped("table5b", *CELL)
    for setting, title in VARIANTS.items():
        runs = found["mnist", "ae-opa", setting]
        before = [run["pretrained"]["table3"]["pac"][0] for run in runs]
        lowest = percent(min(run["acc"] for run in runs))
        cells = [str(len(runs)), score(before), score(runs), lowest, score(runs, "nmi")]
        rows.append([title, *cells])
    theirs = [f"{expected('table5b', 'mnist', 'ae-opa', of):.1f}" for of in ("acc", "nmi")]
    rows.append(["the paper", "", "", theirs[0], "", theirs[1]])
    return table("variant | seeds | PAC on the pre-trained features | ACC | lowest ACC | NMI", rows)


def row_title(name: str, method: str, setting: str) -> str:
    """Return the first cell of a row; a setting of Table 7 says how often targets are computed."""
    row = targets_title(method, setting) if name == "table7" else f"{method} {setting}".strip()
    return f"{name.replace('table', 'Table ')}, {row}"


def targets_title(method: str, setting: str) -> str:
    """Return the method of Table 7's targets and their interval."""
    return f"{TARGETS[method]}, {INTERVALS[setting]}"


def printed_acc(name: str, method: str, setting: str) -> str:
    """Return the paper's ACC on CIFAR-10, or nothing."""
    theirs = printed(name, "cifar10", method, setting, "acc")
    return "" if theirs is None else f"{theirs:.1f}"
