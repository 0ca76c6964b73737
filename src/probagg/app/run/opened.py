"""Run: a finished run folder or a compact export, opened."""

from __future__ import annotations

import html
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from probagg.app.assignments import Assignments
from probagg.app.run.contents import read_result
from probagg.app.run.evaluation import compare
from probagg.app.run.exporting import write_export
from probagg.app.run.folder import add_to_run
from probagg.app.run.model import RunModel
from probagg.app.run.monitor import Monitor
from probagg.app.run.reporting import serve_review, summary_html, write_report
from probagg.app.run.sorting import sort_images
from probagg.data.arrays import read_numpy
from probagg.errors import InputError, NoData
from probagg.storage import encode


class Run(RunModel):
    """A finished run: its table, its model and its page.

    Use `probagg.cluster` to make one and `probagg.open_run` to open one. What a person changed on
    the review page (names, merges, splits, moves, discarded samples) is applied everywhere.

    Attributes
    ----------
    path : Path
        The run folder, or a compact export of one, which can only predict.
    config, result : dict
        The contents of config.toml and result.json.
    """

    def __repr__(self) -> str:
        if self.is_compact:
            return f"Run({str(self.path)!r}, compact export)"
        result = self.result
        noun = "images" if self.config["kind"] == "images" else "rows"
        return (
            f"Run({str(self.path)!r}: {result['n_samples']:,} {noun} in {result['n_clusters']} "
            f"clusters by {result['method'].upper()})"
        )

    def _repr_html_(self) -> str:
        """Show sizes and typical images in a notebook."""
        if self.is_compact:
            return f"<code>{html.escape(repr(self))}</code>"
        return summary_html(self.path, images=self._images, title=repr(self))

    @cached_property
    def result(self) -> dict[str, Any]:
        """The summary of the run: sizes, scores, seconds."""
        self.check_is_run()
        return read_result(self.path)

    @property
    def assignments(self) -> Assignments:
        """The table of the run with the review applied: one entry per sample in each column."""
        self.check_is_run()
        return self.review.apply(Assignments.read(self.path / "assignments.csv", self.n_clusters))

    @property
    def embeddings(self) -> np.ndarray | None:
        """The features of the images, (n, D), memory-mapped; None for a matrix."""
        path = self.path / "embeddings.npy"
        return read_numpy(path)[0] if path.is_file() else None

    def evaluate(self, labels: Any = None) -> dict[str, Any]:
        """Compare the clusters with known classes: ACC, NMI, ARI, the confusion, each cluster.

        `labels` is a CSV file of path,class (rows: row,class), in which paths may be absolute and a
        header may name more columns, a mapping from names to classes, or one class per sample;
        without it, the classes that the source had. Samples that a person discarded do not count.
        """
        self.check_is_run()
        if labels is None and not (labels := self.path / "classes.csv").is_file():
            raise NoData(
                f"The run in {self.path} has no known classes. Give them as labels (--labels "
                "truth.csv with lines of path,class)."
            )
        found = compare(
            self.assignments,
            labels,
            n_clusters=self.n_clusters,
            review=self.review,
            folder=self.config.get("source"),
        )
        return {"run": str(self.path), **found}

    def report(self) -> Path:
        """Write report.html and return its path."""
        self.check_is_run()
        return write_report(self.path, images=self._images)

    def write_reviewed_table(self) -> Path:
        """Write the table with the review applied as assignments_reviewed.csv; return its path."""
        table = encode(self.assignments.to_csv())
        return add_to_run(self.path, "assignments_reviewed.csv", table)

    def serve_review(
        self, *, open_browser: bool = True, port: int = 0, on_ready: Any = None
    ) -> None:
        """Serve the page to review the run on 127.0.0.1 until Done is pressed."""
        self.check_is_run()
        serve_review(self.path, open_browser=open_browser, port=port, on_ready=on_ready)

    def export(
        self,
        format: str = "onnx",
        out: str | PathLike[str] | None = None,
        *,
        features: bool = False,
        overwrite: bool = False,
    ) -> Path:
        """Write the model or the clusters for other programs; return the path.

        The model: "onnx" and "safetensors", one file, and "compact", a folder for `predict`.
        `features` leaves out the backbone: features in, probabilities out. The clusters, with names
        and all else that the review changed, at the place that `out` names: "label-studio" and
        "fiftyone", folders, "datasets", a .parquet file, and "anndata", an .h5ad file.

        An earlier model at its default place in the run is replaced, what `out` names only with
        `overwrite`.
        """
        self.check_is_run()
        facts = write_export(
            self, format, out, features=features, overwrite=overwrite, monitor=Monitor()
        )
        return Path(facts["folder"] if "folder" in facts else facts["file"])

    def sort_images(self, target: str | PathLike[str], *, link: bool = False) -> int:
        """Copy or link the images into one folder per cluster under `target`; return how many."""
        if "source" not in self.config:
            raise InputError("The run was made from data in memory, so there are no files to sort.")
        assigned, source = self.assignments, Path(self.config["source"])
        clusters, names = assigned.cluster.tolist(), self.review.names
        return sort_images(source, assigned.names, clusters, names, Path(target), link=link)

    def check_is_run(self) -> None:
        """Raise where this is a compact export, which has a model and nothing else."""
        if self.is_compact:
            raise NoData(
                f"{self.path} is a compact export: it holds a model for predict and no "
                "assignments. Name the run folder that it was made from."
            )


def open_run(path: str | PathLike[str], *, trust_code: bool = False) -> Run:
    """Open a run folder that `probagg cluster` wrote, or a compact export of one.

    `trust_code` allows the run's backbone to be a "module:function", which is then imported and
    called, or a network that timm loads from a folder or an "hf-hub:" name: pass it only for runs
    whose maker you trust.
    """
    return Run(path, trust_code=trust_code)
