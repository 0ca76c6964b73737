"""OpenedRun: what a finished run folder holds, read as it is asked for."""

import os
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from probagg.app.assignments import Assignments, Further, Yardstick
from probagg.app.review import Review
from probagg.app.run import contents
from probagg.app.run import samples as samples_of
from probagg.app.run.folder import (
    CONFIG,
    REVIEW,
    RunFolderError,
    changed_files,
    identity_of,
    is_being_written,
    is_finished,
    verified,
)
from probagg.app.run.output import photo_of
from probagg.app.run.result import Predicted
from probagg.app.run.samples import Samples
from probagg.app.run.tables import FILE, Preparation
from probagg.data.images import FolderImages
from probagg.errors import InputError, NoData, warn_user
from probagg.progress import Monitor
from probagg.storage import file_version

_NOUNS = {"images": "images", "matrix": "rows", "table": "a table"}


class OpenedRun:
    """A finished run: its table, its model, its samples, with the review applied.

    `images` and `rows` are what was clustered, where it was in memory. `monitor` receives the
    messages of methods, which otherwise go to the log where wanted.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        images: Any = None,
        rows: Any = None,
        trust_code: bool = False,
        monitor: Monitor | None = None,
    ) -> None:
        self.path, self.monitor = Path(path), monitor
        self.images, self.rows, self.trust_code = images, rows, trust_code
        self._assignments: tuple[Any, Assignments] | None = None
        if not self.path.is_dir():
            raise NoData(f"{path} is not a folder. Name a run folder that probagg cluster wrote.")
        if not (self.path / CONFIG).is_file() and not is_being_written(self.path):
            raise NoData(f"{path} holds no run (no {CONFIG}). Name a folder of probagg cluster.")
        if not is_finished(self.path):
            raise RunFolderError(
                f"The run in {path} is not finished. Run its probagg cluster command again first."
            )
        self.config = contents.read_config(self.path)
        if not {"kind", "method"} <= self.config.keys():
            raise RunFolderError(
                f"{self.path / CONFIG} does not say the kind and the method of the run. Copy the "
                "whole run there again."
            )
        self._identity = identity_of(self.path)
        if changed := changed_files(self.path):
            warn_user(
                f"{', '.join(changed)} {'was' if len(changed) == 1 else 'were'} changed after the "
                f"run had finished ({self.path}). If you did not do that, copy the whole run there "
                "again."
            )

    def __repr__(self) -> str:
        result = self.result
        noun = "images" if self.config["kind"] == "images" else "rows"
        return (
            f"Run({str(self.path)!r}: {result['n_samples']:,} {noun} in {result['n_clusters']} "
            f"clusters by {result['method'].upper()})"
        )

    def file(self, name: str) -> Path:
        """Return a file of the run that was opened; a damaged one or another run is an error."""
        if identity_of(self.path) != self._identity:
            raise RunFolderError(
                f"The run in {self.path} was replaced after it had been opened. Open it again."
            )
        return verified(self.path, name)

    @cached_property
    def result(self) -> dict[str, Any]:
        """The summary of the run: sizes, scores, seconds."""
        return contents.read_result(self.file(contents.RESULT).parent)

    @property
    def review(self) -> Review:
        """What a person changed, as saved last."""
        return contents.read_review(self.file(REVIEW).parent)

    @property
    def n_clusters(self) -> int:
        """K, before merges."""
        return self.config.get("n_clusters") or contents.read_n_clusters(self.path)

    @property
    def cluster_names(self) -> list[str]:
        """The name of each cluster, by number, merged ones too; all are different."""
        review = self.review
        names = [review.name_of(k) for k in range(review.n_numbers(self.n_clusters))]
        twice = {name for name in names if names.count(name) > 1}
        return [f"{name} ({k})" if name in twice else name for k, name in enumerate(names)]

    @property
    def yardstick(self) -> Yardstick:
        """What measures distances of new samples."""
        return Yardstick.load(self.file("yardstick.safetensors"))

    @property
    def preparation(self) -> Preparation | None:
        """How the columns of a table became numbers; None for other runs."""
        file = self.file(FILE)
        return Preparation.load(file) if file.is_file() else None

    @property
    def assignments(self) -> Assignments:
        """The table of the run with the review applied: one entry per sample in each column."""
        files = [self.file(name) for name in (contents.ASSIGNMENTS, REVIEW)]
        version = [file_version(file) for file in files]
        if self._assignments is None or self._assignments[0] != version:
            table = contents.read_assignments(files[0].parent, self.n_clusters)
            self._assignments = version, self.review.apply(table)
        return self._assignments[1]

    @property
    def embeddings(self) -> np.ndarray | None:
        """The features of the images, (n, D), memory-mapped; None for a matrix."""
        return contents.read_features(self.file(contents.FEATURES).parent)

    def model(self, device: str = "auto") -> Any:
        """Return what assigns samples: PAC, GraphPAC where it was smoothed, or DPAC."""
        # Estimators are taken by name: PAC alone needs no torch.
        import probagg

        file = self.file("model.safetensors")
        if self.config["method"] == "dpac":
            return probagg.DPAC.load(file, device=device)
        return (probagg.GraphPAC if self.config.get("smooth") else probagg.PAC).load(file)

    def backbone(self, device: str = "auto") -> Any:
        """Return the network whose features were clustered, or None where there is none."""
        if "embed" not in self.config:
            return None
        from probagg.app.embed.opening import reopen_backbone

        return reopen_backbone(self.config["embed"], device, trust_code=self.trust_code)

    def open_new(self, source: Any, monitor: Monitor) -> Samples:
        """Open new samples: images, or rows prepared as those of the run; not of another kind."""
        wanted, preparation = self.config["kind"], self.preparation
        samples = samples_of.open_samples(source, monitor, prefer=wanted)
        kind = wanted if preparation is None else "table"
        if samples.kind != kind:
            given, needed = _NOUNS[samples.kind], _NOUNS[kind]
            raise NoData(
                f"{samples.source or 'What was given'} holds {given}, but the run in {self.path} "
                f"is of {needed}. Give {needed} like {self.config.get('source', 'it')}."
            )
        if samples.table is None or preparation is None:
            return samples.select(self.config.get("columns"))
        prepared = preparation.apply(samples.table)
        for line in prepared.lines:
            monitor.say(line)
        return samples.prepared(preparation, prepared)

    def infer(self, source: Any, device: str, monitor: Monitor) -> tuple[Samples, Any, Any]:
        """Open new samples; return them with their features X and the model's P."""
        samples, model = self.open_new(source, monitor), self.model(device)
        if samples.images is None:
            if samples.X.shape[1] != model.n_features_in_:
                raise NoData(
                    f"{samples.source or 'The matrix'} gives {samples.X.shape[1]:,} columns, but "
                    f"the model in {self.path} takes {model.n_features_in_:,}. Give rows like "
                    "those that were clustered."
                )
            return samples, samples.X, Predicted(model, samples.X)
        if (backbone := self.backbone(device)) is not None:
            samples = samples_of.embed_images(samples, backbone, monitor)
            return samples, samples.X, model.predict_proba(samples.X)
        samples = samples_of.readable(samples.for_recipe(source, model.recipe_), monitor)
        return samples, *model.infer(samples.pictures)

    def assign(self, source: Any, device: str, monitor: Monitor) -> tuple[Samples, Assignments]:
        """Open new samples and assign them (see `predict`)."""
        # A damaged file fails before work.
        yardstick = self.yardstick
        samples, X, P = self.infer(source, device, monitor)
        review = self.review
        table = Assignments.of(P, X, yardstick, samples.names, heading=samples.heading)
        if review.merged:
            table = replace(table, further=Further.of(P, table))
        # A sample of the run itself that a person moved stays where it was put.
        names = samples.names_in(self.config.get("source"))
        return samples, review.apply(table, names or [], X)

    def clustered_rows(self) -> Any:
        """Return the features of images, or the rows as they were clustered; None where unknown."""
        X = self.rows if self.embeddings is None else self.embeddings
        if X is None and "source" in self.config:
            X = self.open_new(self.config["source"], Monitor()).X
        if X is not None and X.shape[0] != len(self.assignments):
            raise NoData(
                f"{self.config.get('source')} now has {X.shape[0]:,} rows, but "
                f"{len(self.assignments):,} were clustered. Cluster it again."
            )
        return X

    def compared_rows(self) -> tuple[Any, str]:
        """Return the rows as they were clustered, which must be there, and the metric."""
        X = self.clustered_rows()
        if X is None:
            raise NoData(
                f"The rows of the run in {self.path} were in memory and are not in its folder. Do "
                "this in the program that clusters them, or cluster a file."
            )
        return X, self.yardstick.metric

    def photos(self, names: list[str]) -> tuple[Path, list[Path]]:
        """Return the folder of the photos and the path of each."""
        if isinstance(self.images, FolderImages):
            folder = self.images.folder.resolve()
        elif "source" in self.config:
            source = Path(self.config["source"])
            folder = source if source.is_dir() else source.parent
        elif all(os.path.isabs(name) for name in names):
            folder = Path("/")
        else:
            raise InputError(
                f"The run in {self.path} was made from a list of paths in memory, which are "
                "relative to a folder that is not known. Cluster the folder, or export in the same "
                "program."
            )
        if "source" in self.config and self.images is None:
            return folder, [photo_of(folder, name) for name in names]
        files = [folder / name for name in names]
        if not all(file.is_relative_to(folder) for file in files) or folder == Path("/"):
            folder = Path(os.path.commonpath([file.parent for file in files]))
        return folder, files
