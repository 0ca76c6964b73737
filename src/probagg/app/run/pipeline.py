"""From a source to a finished run: what `probagg.cluster` and `probagg cluster` do."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from probagg.app.run.by_dpac import Deep
from probagg.app.run.by_pac import Flat
from probagg.app.run.estimates import slowness
from probagg.app.run.folder import RunFolder, RunFolderError, has_checkpoints, is_being_written
from probagg.app.run.monitor import LogMonitor, Monitor
from probagg.app.run.options import Request, check_k, default_out, title_of
from probagg.app.run.pages import save_map, write_report
from probagg.app.run.result import Clustering, describe, write
from probagg.app.run.run import Run
from probagg.data import benchmarks
from probagg.data.opening import is_image_source
from probagg.errors import InputError, first_line

PAC, OPA, DPAC = "pac", "opa", "dpac"
METHODS = ("auto", PAC, OPA, DPAC)
OPTIONS = {  # which methods use an option
    "backbone": (PAC, OPA),
    "weights": (PAC, OPA),
    "recipe": (DPAC,),
    "settings": (DPAC,),
    "device": (PAC, OPA, DPAC),
    "precision": (DPAC,),
    "max_minutes": (DPAC,),
    "resume": (DPAC,),
    "m": (PAC, OPA),
    "metric": (PAC, OPA),
    "balance": (PAC, OPA),
    "n_init": (PAC,),
    "smooth": (PAC,),
    "deduplicate": (PAC, OPA),
    "id": (PAC, OPA),
    "scale": (PAC, OPA),
    "drop": (PAC, OPA),
}


def cluster(
    source: Any,
    n_clusters: int | tuple[int, int] | str | None = None,
    *,
    out: str | PathLike[str] | None = None,
    method: str = "auto",
    backbone: str | None = None,
    weights: str | PathLike[str] | None = None,
    m: float | str | None = None,
    metric: str | None = None,
    balance: float | str | None = None,
    n_init: int | None = None,
    smooth: bool | None = None,
    deduplicate: bool = False,
    id: str | None = None,
    scale: str | None = None,
    drop: Sequence[str] | None = None,
    recipe: Any = None,
    settings: Sequence[str] | None = None,
    precision: str | None = None,
    max_minutes: float | None = None,
    resume: str | None = None,
    device: str | None = None,
    labels: Any = None,
    max_bad: int | None = None,
    report: bool = True,
    overwrite: bool = False,
    random_state: int = 0,
    verbose: int = 0,
) -> Run:
    """Cluster images, a matrix or a table, write a run folder and return it opened.

    This is what the command `probagg cluster` does, with the same result.

    Parameters
    ----------
    source : path, str, array, DataFrame, Arrow table, AnnData, list of paths, or Dataset
        A folder of images, a file (.npz, .npy, .csv, .parquet, .h5ad, an image), the name of a set,
        images as a uint8 array (n, height, width[, channels]), a matrix (n, columns), or a table. A
        Dataset is one of torch with images, or one of Hugging Face with images or columns.
    n_clusters : int, "auto", (low, high) or None
        K, or the range to choose it from. None is the number of classes of a named set.
    out : path, default="runs/SOURCE-TIME"
        The run folder.
    method : {"auto", "pac", "opa", "dpac"}
        PAC; a head trained by OPA; DPAC, which trains a network on the images. "auto" is PAC, and
        DPAC for a named set of images.
    backbone, weights : str or None
        PAC and OPA on images: the network whose features are clustered, by default DINOv2, and a
        file of weights for it. "NAME,NAME" joins the features of two, each of length 1.
    m, metric, balance, n_init
        Of `PAC` and `OPAHead`. The default of balance is "auto"; for features of images the
        defaults are m="auto" (PAC), cosine distance and n_init=3, for a matrix the estimator's own.
    smooth : bool or None
        PAC on images: whether probabilities are averaged over similar images, also those of new
        ones. None is True where there are 20 images per cluster; with fewer there is no smoothing.
    deduplicate : bool
        PAC and OPA on images: whether near-duplicates count as one photo. One of each group is
        clustered, and the others get its probabilities. duplicates.csv lists them either way.
    id, scale, drop
        Of tables (.csv, .parquet, a DataFrame): the column that names the rows, guessed by default;
        how numbers and dates are scaled, "standard", "robust", "none" or "auto", which standardises
        where standard deviations differ by a factor of more than 10; and columns to leave out.
        Categories, booleans, dates and missing values are prepared, and `predict` repeats it.
    recipe, settings, precision, max_minutes, resume
        DPAC: a `Recipe`, its name or a TOML file; changes to it, as ["cluster.m=1.05"]; and how to
        train. resume="never" starts over where `out` holds an unfinished run.
    device : str or None
        Of networks: "auto", "cpu", "cuda" or "mps".
    labels : path, mapping, sequence or None
        Known classes to report against: a CSV file of path,class (rows: row,class), a mapping from
        names to classes, one class per sample, or the name of a column of a table. They are never
        used for clustering.
    max_bad : int or None
        An error where more files or rows than this cannot be used; None skips any number of them,
        listed in skipped.csv.
    report : bool
        Whether to write report.html.
    overwrite : bool
        Whether to replace a finished run in `out`, once the new one is whole.
    random_state : int
        Fixes starts, order and views.
    verbose : int
        Above 0, messages and progress go to the "probagg" log.

    Returns
    -------
    Run
        The finished run. Under torchrun, call this in every process; the first one writes.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_digits
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = cluster(load_digits().data, 10, out=f"{folder}/digits", report=False)
    ...     run.result["n_clusters"], len(run.assignments)
    (10, 1797)
    """
    monitor = LogMonitor() if verbose else Monitor()
    return plan(
        source,
        n_clusters,
        out=out,
        method=method,
        labels=labels,
        max_bad=max_bad,
        report=report,
        overwrite=overwrite,
        seed=random_state,
        monitor=monitor,
        backbone=backbone,
        weights=weights,
        m=m,
        metric=metric,
        balance=balance,
        n_init=n_init,
        smooth=smooth,
        deduplicate=deduplicate or None,
        id=id,
        scale=scale,
        drop=drop,
        recipe=recipe,
        settings=settings,
        precision=precision,
        max_minutes=max_minutes,
        resume=resume,
        device=device,
    ).run()


@dataclass(frozen=True)
class Plan:
    """A clustering that is ready to run."""

    work: Flat | Deep
    report: bool
    overwrite: bool

    @property
    def is_first_process(self) -> bool:
        """Whether this process writes the run; under torchrun the others only train."""
        return self.work.is_first_process

    def describe(self) -> dict[str, Any]:
        """Return what will be done, in words, roughly how long it takes, and where it goes.

        Where something else would do better on this machine, "advice" says what.
        """
        what, seconds = self.work.plan()
        advice = self.work.advice(seconds)
        if self.report:
            seconds += slowness() * (1.0 + min(len(self.work.samples), 2000) / 220)
        request = self.work.request
        return {
            "source": request.title,
            "plan": what,
            "seconds": round(seconds),
            "run": str(request.out),
            **({} if advice is None else {"advice": advice}),
        }

    def run(self) -> Run:
        """Cluster, write the run folder and return it opened."""
        out, monitor = self.work.request.out, self.work.request.monitor
        if isinstance(self.work, Deep) and not self.is_first_process:
            self.work.join()
            while is_being_written(out):  # by the first process
                time.sleep(0.2)
            return Run(out)
        with RunFolder(out, overwrite=self.overwrite) as folder:
            if isinstance(self.work, Flat) and has_checkpoints(out):  # of a run that this replaces
                from probagg.dpac.checkpoint import CHECKPOINT_FILES

                folder.resumes_from(*(f"checkpoints/{name}" for name in CHECKPOINT_FILES))
            clustering = self.work.run(folder)
            result = write(folder, clustering)
            for line in describe(clustering, result):
                monitor.say(line)
            folder.write("log.txt", "\n".join(monitor.lines) + "\n")
        monitor.say(f"written to {out}")
        if self.report:
            _write_page(out, clustering, monitor)
        samples = clustering.samples
        rows = clustering.X if samples.images is None else None
        # The user of this process named the backbone, so it may be code.
        return Run(out, images=samples.images, rows=rows, trust_code=True)


def plan(
    source: Any,
    n_clusters: Any = None,
    *,
    out: str | PathLike[str] | None = None,
    method: str = "auto",
    labels: Any = None,
    max_bad: int | None = None,
    report: bool = True,
    overwrite: bool = False,
    seed: int = 0,
    monitor: Monitor,
    download: bool = True,
    **options: Any,
) -> Plan:
    """Check everything that can be checked before work starts (see `cluster`); return the plan.

    Without `download`, the plan of a set that is not on this computer can be described only.
    """
    if seed is not None and not isinstance(seed, Integral):
        raise InputError(
            f"random_state is {seed!r}, but a whole number is needed, which the run records."
        )
    out = default_out(source) if out is None else Path(out)
    outline = None if download else _outline(source, monitor)
    request = Request(
        source, check_k(n_clusters), out, _plain(seed), labels, monitor, max_bad, outline
    )
    chosen = choose_method(source, method)
    given = _check_options(chosen, options)
    RunFolder(out, overwrite=overwrite).check()
    if chosen != DPAC and has_checkpoints(out) and not overwrite:
        raise RunFolderError(
            f"{out} holds an unfinished run of DPAC, which its own command resumes. Name another "
            f"folder for {chosen.upper()}, or replace the unfinished run with --overwrite "
            "(overwrite=True)."
        )
    work = Deep(request, given) if chosen == DPAC else Flat(request, chosen, given)
    return Plan(work, report, overwrite)


def _outline(source: Any, monitor: Monitor) -> Any:
    """Return the outline of a named set that is not on this computer, and say so; or None."""
    if not isinstance(source, str) or Path(source).exists():
        return None
    found = benchmarks.outline(source)
    if found is not None:
        monitor.say(f"{source} is not on this computer: it is downloaded first.")
    return found


def choose_method(source: Any, method: str) -> str:
    """Return the method, checked against what the source is."""
    if method not in METHODS:
        raise InputError(f"method is {method!r}; possible are {', '.join(METHODS)}.")
    images = is_image_source(source)
    named = isinstance(source, str) and source in benchmarks.IMAGE_NAMES
    if method == "auto":
        return DPAC if images and named else PAC
    if method == DPAC and not images and not named:
        known = ", ".join(benchmarks.IMAGE_NAMES)
        raise InputError(
            f"{title_of(source)!r} is not a set of images. DPAC takes a folder, an .npz file, an "
            f"array of images, {known}."
        )
    return method


def _check_options(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given; one that the method does not use is an error."""
    given = {name: _plain(value) for name, value in options.items() if value is not None}
    unused = [name for name in given if method not in OPTIONS[name]]
    if unused:
        raise InputError(
            f"{', '.join(unused)}: not used by method {method}. Leave out, or choose another "
            "method."
        )
    for name in ("drop", "settings"):
        if isinstance(value := given.get(name), str):
            raise InputError(f"{name} is {value!r}, but a list is needed: [{value!r}].")
    return given


def _plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python, which config.toml can hold."""
    return value.item() if isinstance(value, np.generic) else value


def _write_page(out: Path, clustering: Clustering, monitor: Monitor) -> None:
    """Write the page once the run is sealed: an error here costs only the page."""
    try:
        save_map(out, clustering.X, monitor.count("map", "steps"))
        page = write_report(out, images=clustering.samples.images)
    except ImportError as error:
        warnings.warn(f"There is no report.html. {error}", stacklevel=4)
    except Exception as error:
        again = f"Try again: probagg report {out}"
        warnings.warn(f"There is no report.html ({first_line(error)}). {again}", stacklevel=4)
    else:
        monitor.say(f"look at {page}")
