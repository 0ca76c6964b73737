"""Table 5b: a fully connected autoencoder with OPA on MNIST, and what would change its result.

The network is DEC's, since the paper does not describe its own. The recipe is mnist/fast, 30 + 30
epochs on 70,000 images; the settings change it. At size small 10 + 10 epochs on the first 10,000
images. At size tiny a smaller autoencoder clusters scikit-learn's digits.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.paper.deep import Experiment
from benchmarks.record import Cell
from benchmarks.study import Run, Study
from probagg import Recipe

SHORT = ("pretrain.epochs=10", "cluster.epochs=10")
TINY = (
    "network.backbone=mlp", "network.layers=[64,10]", "network.classifier=[]",
    "pretext.task=autoencoder", "pretext.views=['weak']", "pretext.head=[64]",
    "pretrain.epochs=3", "cluster.epochs=3",
)  # fmt: skip
RECIPES = {"full": ("mnist", ()), "small": ("mnist", SHORT), "tiny": ("digits", TINY)}
RANDOM = (
    "cluster.start=random", "cluster.stratify=false", "cluster.balance=1.0",
    "cluster.backbone_gradient=1.0",
)  # fmt: skip
SETTINGS: dict[str, tuple[str, ...]] = {  # changes of the recipe
    "": (),
    "self-label": ("self_label.epochs=30",),
    "random-start": RANDOM,
    "random-start-longer": (*RANDOM, "pretrain.epochs=150", "cluster.epochs=100"),
    "random-start-convolutions": (*RANDOM, "network.backbone=convnet"),
    "random-start-contrast": (  # not an autoencoder
        *RANDOM, "pretext.task=wcl", "pretext.views=['weak','strong']", "pretext.head=[512,128]",
        "pretext.weight=1.0",
    ),
}  # fmt: skip


def cells(size: str, seeds: int) -> Iterable[Cell]:
    """Yield every run of the table, and at full size the runs with other settings."""
    for setting in SETTINGS if size == "full" else ("",):
        yield from (Cell(RECIPES[size][0], "ae-opa", setting, seed) for seed in range(seeds))


def run(cell: Cell, size: str) -> Run:
    """Pre-train the autoencoder, cluster with it and, where asked for, label itself."""
    data, changes = RECIPES[size]
    experiment = Experiment(data, size, cell.seed, Recipe.of(f"{data}/fast").override(changes))
    settings = SETTINGS[cell.setting]
    first = [s for s in settings if not s.startswith(("cluster.", "self_label."))]  # shared
    pretrained = experiment.pretrained(*first)
    second = [s for s in settings if not s.startswith("self_label.")]
    end = experiment.trained("cluster", pretrained, *second)
    if cell.setting == "self-label":
        end = experiment.trained("self_label", end, *settings)
    return experiment.row(pretrained, end)


STUDY = Study(
    "table5b",
    cells,
    run,
    seeds=3,
    shown=("acc", "nmi"),
    on_request=frozenset(SETTINGS) - {""},
)
