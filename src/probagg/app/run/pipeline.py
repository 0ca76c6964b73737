"""From a source to a finished run: what `probagg.cluster` and `probagg cluster` do."""

import time
from collections.abc import Sequence
from os import PathLike
from typing import Any

from probagg.app.run.folder import (
    CHECKPOINTS,
    RunFolder,
    RunFolderError,
    is_being_written,
    unfinished,
)
from probagg.app.run.methods import ByDpac, ByPac
from probagg.app.run.options import DPAC, Options, Request
from probagg.app.run.pages import write_page
from probagg.app.run.result import describe_result, write
from probagg.app.run.run import Run
from probagg.data.opening import is_here
from probagg.errors import NoData
from probagg.progress import Monitor
from probagg.storage import find_files


def cluster(
    source: Any,
    n_clusters: int | tuple[int, int] | str | None = None,
    *,
    out: str | PathLike[str] | None = None,
    method: str = "auto",
    backbone: str | None = None,
    m: float | str | None = None,
    metric: str | None = None,
    balance: float | None = None,
    n_init: int | None = None,
    smooth: bool | None = None,
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
    report: bool = True,
    overwrite: bool = False,
    random_state: int | None = 0,
    verbose: int = 0,
) -> Run:
    """Cluster images, a matrix or a table, write a run folder and return it opened.

    This is what the command `probagg cluster` does, with the same result.

    Parameters
    ----------
    source : path, str, array, DataFrame, Arrow table, AnnData, list of paths, or Dataset
        A folder of images, a file (.npz, .npy, .csv, .parquet, .h5ad, an image), the name of a set,
        images as an array (n, height, width[, channels]), uint8 or float in [0, 1], a matrix (n,
        columns), a table, or a map-style Dataset of images, as torch has them.
    n_clusters : int, "auto", (low, high) or None
        K, or the range to choose it from. None is the number of classes of a named set.
    out : path, default="runs/SOURCE-TIME"
        The run folder.
    method : {"auto", "pac", "dpac"}
        PAC, or DPAC, which trains a network on the images. "auto" is DPAC for a named set of
        images, otherwise PAC.
    backbone : str or None
        PAC on images: the network whose features are clustered, by default DINOv2.
    m, metric, balance, n_init
        Of `PAC`. For features of images the defaults are m="auto", cosine distance and n_init=3,
        for a matrix the estimator's own.
    smooth : bool or None
        PAC: whether probabilities are averaged over similar rows or images, and parts joined where
        clusters are not compact, also for new ones (`False` is the paper's PAC). None is True where
        there are 20 per cluster in dense rows that fit in memory; otherwise there is no smoothing.
    id, scale, drop
        Of tables (.csv, .parquet, a DataFrame): the column that names the rows, guessed by default;
        how numbers and dates are scaled, "standard", "none" or "auto", which standardises where
        standard deviations differ by a factor of more than 10; and columns to leave out.
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
    report : bool
        Whether to write report.html.
    overwrite : bool
        Whether to replace a finished run in `out`, once the new one is whole.
    random_state : int or None
        Fixes starts, order and views; of None, a seed is drawn. The run records it.
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
    asked = {name: v for name, v in locals().items() if name not in ("source", "verbose")}
    return run_plan(plan(source, Options(**asked), Monitor(verbose > 0)))


def plan(
    source: Any, options: Options, monitor: Monitor, *, download: bool = True
) -> ByPac | ByDpac:
    """Check everything that can be checked before work starts (see `cluster`).

    Without `download`, what is not on this computer can only be described.
    """
    options = options.checked(source)
    if not download and isinstance(source, str) and not is_here(source):
        raise NoData(f"{source} is not on this computer. Without --dry-run it is downloaded first.")
    request = Request(source, options, monitor, download)
    RunFolder(request.out, overwrite=options.overwrite).check()
    is_resumable = bool(find_files(unfinished(request.out), [CHECKPOINTS]))
    if options.method != DPAC and is_resumable and not options.overwrite:
        raise RunFolderError(
            f"{request.out} holds an unfinished run of DPAC, which its own command resumes. Name "
            f"another folder for {options.method.upper()}, or replace the unfinished run with "
            "--overwrite (overwrite=True)."
        )
    return ByDpac(request) if options.method == DPAC else ByPac(request)


def run_plan(work: ByPac | ByDpac) -> Run:
    """Cluster as planned, write the run folder and return it opened."""
    request = work.request
    out, monitor, options = request.out, request.monitor, request.options
    if isinstance(work, ByDpac) and not work.is_first_process:
        work.join()
        # The first process writes it.
        while is_being_written(out):
            time.sleep(0.2)
        return Run(out)
    with RunFolder(out, overwrite=options.overwrite) as folder:
        clustering = work.run(folder)
        result = write(folder, clustering)
        for line in describe_result(clustering, result):
            monitor.say(line)
        folder.write("log.txt", "\n".join(monitor.lines) + "\n")
    monitor.say(f"written to {out}")
    if options.report:
        write_page(out, clustering.X, clustering.samples.images, monitor)
    samples = clustering.samples
    rows = clustering.X if samples.images is None else None
    # The user of this process named the backbone, so it may be code.
    return Run(out, images=samples.images, rows=rows, trust_code=True)
