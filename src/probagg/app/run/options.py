"""What can be asked of a clustering: every option once, with its default, use and spelling."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from probagg.app.run.folder import unused
from probagg.app.run.samples import Samples, open_samples
from probagg.data.opening import is_named, n_classes
from probagg.errors import InputError
from probagg.progress import Monitor

PAC, DPAC = "pac", "dpac"
METHODS = ("auto", PAC, DPAC)


@dataclass(frozen=True)
class Spelling:
    """How the command line spells and describes an option, and which methods use it."""

    help: str
    methods: tuple[str, ...] = (PAC, DPAC)
    flags: tuple[str, ...] = ()
    """Flags that differ from the option's name."""
    typed: Any = None
    """The type of what is typed where it differs from the option's."""
    least: float | None = None
    choices: tuple[str, ...] = ()


def option(help: str, *, default: Any = None, **spelling: Any) -> Any:
    """Return a field of `Options` with its default and its spelling."""
    return field(default=default, metadata={"spelling": Spelling(help, **spelling)})


for_pac = partial(option, methods=(PAC,))
for_dpac = partial(option, methods=(DPAC,))


@dataclass(frozen=True)
class Options:
    """The options of a clustering, filled by `probagg cluster` and by `probagg.cluster`.

    The function's signature and docstring are checked against these fields, and the command's
    options are made from them in this order (`probagg.app.cli.options`). None is the default that
    the help describes.
    """

    n_clusters: int | tuple[int, int] | str | None = option(
        "Number of clusters: a number, auto, or a range to choose from, such as 5:40. "
        "[default: the number of classes of a named set]",
        flags=("-k", "--k", "--n-clusters"),
        typed=str,
    )
    out: str | PathLike[str] | None = option("Run folder. [default: runs/SOURCE-TIME]", typed=Path)
    method: str = option(
        "pac; dpac: train a network on the images; auto: dpac for a named image set, otherwise "
        "pac.",
        choices=METHODS,
        default="auto",
    )
    backbone: str | None = for_pac(
        "Images: the network whose features are clustered: any timm model, "
        "efficientnet-lite0, a folder, or module:function. [default: "
        "vit_small_patch14_dinov2.lvd142m]"
    )
    labels: Any = option(
        "Known classes, only to report scores: a CSV of path,class (for rows: row,class), or "
        "the name of a column of a table.",
        typed=Path,
    )
    recipe: Any = for_dpac(
        "dpac: NAME/fast, NAME/paper or a .toml file. [default: SOURCE/fast]", typed=str
    )
    settings: Sequence[str] | None = for_dpac(
        "dpac: change a key of the recipe, e.g. cluster.m=1.05. Repeatable.",
        flags=("--set",),
        typed=list[str],
    )
    device: str | None = option("Networks: auto, cpu, cuda, mps. [default: auto]")
    precision: str | None = for_dpac("dpac: auto, fp32, bf16, fp16. [default: auto]")
    max_minutes: float | None = for_dpac("dpac: save and stop after this time.", least=0)
    resume: str | None = for_dpac(
        "dpac: 'auto' resumes an unfinished run in --out, 'never' starts from the beginning. "
        "[default: auto]"
    )
    m: float | str | None = for_pac(
        "pac: a number above 1 that controls how soft assignments are (closer to 1 is harder), "
        "or auto. [default: auto for images, else 1.03]",
        typed=str,
    )
    metric: str | None = for_pac(
        "pac: sqeuclidean, cosine or another metric of scikit-learn. [default: cosine for "
        "images, sqeuclidean for a matrix]"
    )
    balance: float | None = for_pac(
        "pac: preference for clusters of equal size, 0 (none) to 2 (strong). The paper's is 1. "
        "[default: 1]"
    )
    n_init: int | None = for_pac(
        "pac: number of starts, of which the best is kept. [default: 3 for images, else 1]", least=1
    )
    smooth: bool | None = for_pac(
        "pac: average probabilities over similar rows or photos, and join parts of clusters "
        "that are not compact; also for predict and export. [default: smooth, from 20 per "
        "cluster]",
        flags=("--smooth/--no-smooth",),
    )
    id: str | None = for_pac(
        "Tables: the column with the ids of the rows. [default: an index or unique text]"
    )
    scale: str | None = for_pac(
        "Tables: how to scale columns: standard, none, or auto: standard if standard deviations "
        "differ by a factor of more than 10. [default: auto]"
    )
    drop: Sequence[str] | None = for_pac(
        "Tables: a column to leave out. Repeatable.", typed=list[str]
    )
    report: bool = option("Write report.html.", flags=("--report/--no-report",), default=True)
    random_state: int | None = option(
        "Seed of all random numbers (starts, order, views).",
        flags=("--seed",),
        typed=int,
        least=0,
        default=0,
    )
    overwrite: bool = option(
        "Replace a finished run, or an unfinished one of another method.",
        flags=("--overwrite",),
        default=False,
    )

    @classmethod
    def spelling(cls, name: str) -> Spelling:
        """Return how the command line spells an option."""
        return cls.__dataclass_fields__[name].metadata["spelling"]

    def given(self, *names: str) -> dict[str, Any]:
        """Return those of the named options that differ from their defaults."""
        defaults = {f.name: f.default for f in fields(self) if f.name in names}
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value != defaults[name]}

    def checked(self, source: Any) -> Self:
        """Return the options with a method, a folder and a seed, or raise what cannot be used.

        Numbers of NumPy become Python's, which config.toml can hold. An option that the method
        does not use is an error.
        """
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in given.items()}
        if plain["random_state"] is None:
            plain["random_state"] = secrets.randbelow(2**31)
        if not isinstance(plain["random_state"], Integral):
            raise InputError(
                f"random_state is {plain['random_state']!r}, but a whole number is needed, which "
                "the run records."
            )
        plain["out"] = default_out(source) if self.out is None else Path(self.out)
        plain["n_clusters"] = check_k(self.n_clusters)
        if self.method not in METHODS:
            raise InputError(f"method is {self.method!r}; possible are {', '.join(METHODS)}.")
        if self.method == "auto":
            plain["method"] = DPAC if is_named(source) else PAC
        options = replace(self, **plain)
        others = (
            f.name for f in fields(self) if options.method not in self.spelling(f.name).methods
        )
        if unused := options.given(*others):
            raise InputError(
                f"{', '.join(unused)}: not used by method {options.method}. Leave out, or choose "
                "another method."
            )
        for name in ("drop", "settings"):
            if isinstance(value := plain[name], str):
                raise InputError(f"{name} is {value!r}, but a list is needed: [{value!r}].")
        return options


@dataclass(frozen=True)
class Request:
    """A source, and what was asked for: options that are checked."""

    source: Any
    options: Options
    monitor: Monitor
    download: bool = True
    """Whether weights may be downloaded."""

    def open(self, monitor: Monitor) -> Samples:
        """Open the source: as images for DPAC and a backbone, otherwise as what it is."""
        is_for_images = self.options.method == DPAC or self.options.backbone is not None
        prefer = "images" if is_for_images else "matrix"
        return open_samples(self.source, monitor, prefer=prefer)

    @property
    def title(self) -> str:
        """The source in a message."""
        return title_of(self.source)

    @property
    def out(self) -> Path:
        """The run folder."""
        return Path(self.options.out or "")

    @property
    def seed(self) -> int:
        """The seed of all random numbers."""
        return self.options.random_state or 0

    def config(self, samples: Samples, n_clusters: int) -> dict[str, Any]:
        """Return the first lines of config.toml, which every method writes."""
        return {
            "source": samples.source,
            "kind": "matrix" if samples.images is None else "images",
            "method": self.options.method,
            "n_clusters": n_clusters,
            "seed": self.seed,
        }

    def clusters(self) -> int | tuple[int, int] | str:
        """Return K as given, or the number of classes of a named set."""
        if self.options.n_clusters is not None:
            return self.options.n_clusters
        if is_named(self.source):
            return n_classes(self.source)
        if isinstance(self.source, str | PathLike) and not Path(self.source).expanduser().exists():
            # That the source is not there is said first.
            self.open(Monitor())
        raise InputError(
            f"The number of clusters is missing. Give one for {self.title}, as 10 (-k 10), or let "
            "it be chosen with auto or a range (-k auto, -k 5:40)."
        )


def default_out(source: Any) -> Path:
    """Return runs/SOURCE-TIME, with a number where a run that began in the same second is there."""
    is_path = isinstance(source, str | PathLike) and Path(source).exists()
    name = Path(source).resolve().stem if is_path else title_of(source)
    return unused(Path("runs", f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"))


def title_of(source: Any) -> str:
    """Return a source's path or name, or what kind of data it is."""
    return str(source) if isinstance(source, str | PathLike) else type(source).__name__


def check_k(k: Any) -> int | tuple[int, int] | str | None:
    """Return the number of clusters as given, or raise where it cannot be used."""
    if k is None or k == "auto":
        return k
    if isinstance(k, Integral) and not isinstance(k, bool):
        if k < 1:
            raise InputError(f"The number of clusters is {k}, but at least 1 is needed.")
        return int(k)
    if isinstance(k, tuple) and len(k) == 2 and all(isinstance(end, Integral) for end in k):
        if not 2 <= k[0] < k[1]:
            raise InputError(
                f"The range of K is {k[0]} to {k[1]}, but it must begin at 2 or more and end "
                "higher, as 5 to 40."
            )
        return (int(k[0]), int(k[1]))
    raise InputError(
        f"The number of clusters is {k!r}, but a whole number, a range (low, high) or 'auto' is "
        "needed."
    )
