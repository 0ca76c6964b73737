"""Run: a finished run folder, opened."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from probagg.app.assignments import COLUMNS, Assignments, Yardstick
from probagg.app.export.tools import (
    Labelled,
    unique_names,
    write_anndata,
    write_fiftyone,
    write_label_studio,
)
from probagg.app.report.contents import Contents
from probagg.app.report.review.server import serve
from probagg.app.review import Review
from probagg.app.run import samples as opened
from probagg.app.run.contents import (
    ASSIGNMENTS,
    FEATURES,
    MAX_CLUSTERS,
    RESULT,
    read_assignments,
    read_config,
    read_contents,
    read_features,
    read_n_clusters,
    read_result,
    read_review,
)
from probagg.app.run.folder import (
    CONFIG,
    DUPLICATES,
    REVIEW,
    SUGGESTIONS,
    RunFolder,
    RunFolderError,
    add_to_run,
    changed_files,
    identity_of,
    is_being_written,
    is_finished,
    verified,
)
from probagg.app.run.learning import (
    NEW_CLUSTERS,
    Parent,
    beside,
    refine_run,
    update_lines,
    update_run,
    write_successor,
)
from probagg.app.run.monitor import LogMonitor, Monitor
from probagg.app.run.output import Output, check_target, photo_of, sort_images
from probagg.app.run.pages import find_images, review_session, write_report
from probagg.app.run.result import Predicted
from probagg.app.run.samples import Samples, classes_of
from probagg.app.run.selection import look_first, most_similar
from probagg.app.run.tables import FILE, Preparation
from probagg.data.images import FolderImages
from probagg.data.labels import Classes, read_pairs
from probagg.data.opening import open_images
from probagg.data.photo import BadImage
from probagg.errors import InputError, NoData, ProbaggError, warn_user
from probagg.metrics import evaluate
from probagg.storage import encode, file_version, open_regular, read_bytes, whole_file, whole_folder

# The model, and its place in the run where no other is given.
ONNX, MODEL = "onnx", "model.onnx"
# Formats for tools: a folder and what writes it, or a file, of AnnData.
FOLDERS = {"label-studio": write_label_studio, "fiftyone": write_fiftyone}
ANNDATA, SUFFIX = "anndata", ".h5ad"
TOOLS = (*FOLDERS, ANNDATA)
FORMATS = (ONNX, *TOOLS)
# Files that a run made from another takes over.
CARRIED = (DUPLICATES, SUGGESTIONS, FILE, "skipped.csv")


class Run:
    """A finished run: its table, its model and its page.

    Use `probagg.cluster` to make one and `probagg.open_run` to open one. What a person changed on
    the review page (names, merges, splits, moves, discarded samples) is applied everywhere.

    Attributes
    ----------
    path : Path
        The run folder.
    config, result : dict
        The contents of config.toml and result.json.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        images: Any = None,
        rows: Any = None,
        trust_code: bool = False,
    ) -> None:
        self.path = Path(path)
        self._images, self._rows, self._trust_code = images, rows, trust_code
        self._assignments: tuple[Any, Assignments] | None = None
        if not self.path.is_dir():
            raise NoData(f"{path} is not a folder. Name a run folder that probagg cluster wrote.")
        if not (self.path / CONFIG).is_file() and not is_being_written(self.path):
            raise NoData(f"{path} holds no run (no {CONFIG}). Name a folder of probagg cluster.")
        if not is_finished(self.path):
            raise RunFolderError(
                f"The run in {path} is not finished. Run its probagg cluster command again first."
            )
        self.config = read_config(self.path)
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

    def _file(self, name: str) -> Path:
        """Return a file of the run that was opened; a damaged one or another run is an error."""
        if identity_of(self.path) != self._identity:
            raise RunFolderError(
                f"The run in {self.path} was replaced after it had been opened. Open it again."
            )
        return verified(self.path, name)

    @property
    def review(self) -> Review:
        """What a person changed, as saved last."""
        return read_review(self._file(REVIEW).parent)

    @property
    def n_clusters(self) -> int:
        """K, before merges."""
        return self.config.get("n_clusters") or read_n_clusters(self.path)

    @property
    def yardstick(self) -> Yardstick:
        """What measures distances of new samples."""
        return Yardstick.load(self._file("yardstick.safetensors"))

    def model(self, device: str = "auto") -> Any:
        """Return what assigns samples: PAC, GraphPAC where it was smoothed, or DPAC."""
        # Estimators are taken by name: PAC alone needs no torch.
        import probagg

        file = self._file("model.safetensors")
        if self.config["method"] == "dpac":
            return probagg.DPAC.load(file, device=device)
        return (probagg.GraphPAC if self.config.get("smooth") else probagg.PAC).load(file)

    def backbone(self, device: str = "auto") -> Any:
        """Return the network whose features were clustered, or None where there is none."""
        if "embed" not in self.config:
            return None
        from probagg.app.embed import reopen_backbone

        return reopen_backbone(self.config["embed"], device, trust_code=self._trust_code)

    def predict(self, source: Any, *, device: str = "auto", verbose: int = 0) -> Assignments:
        """Return the clusters of new samples: images or rows, as for `probagg.cluster`.

        Nothing is fitted again. Files that cannot be read are left out with a warning. Another says
        where many samples are outliers, which fit no cluster.
        """
        samples, assigned = self.assign(source, device, LogMonitor() if verbose else Monitor())
        for line in samples.left_out():
            warn_user(line)
        if assigned.is_foreign():
            warn_user(assigned.fit_line())
        return assigned

    def assign(self, source: Any, device: str, monitor: Monitor) -> tuple[Samples, Assignments]:
        """Open new samples and assign them (see `predict`)."""
        # A damaged file fails before work.
        yardstick = self.yardstick
        samples, X, P = self._inferred(source, device, monitor)
        review = self.review
        K = P.shape[1]
        groups = partial(review.regions, K) if review.splits else review.groups(K)[:K]
        assigned = Assignments.of(P, X, yardstick, samples.names, groups, heading=samples.heading)
        # A sample of the run itself that a person moved stays where it was put.
        names = samples.names_in(self.config.get("source"))
        return samples, review.apply(assigned, names or [])

    def onnx_inputs(self, source: Any) -> np.ndarray:
        """Return images as the exported model takes them: uint8 (n, height, width, channels).

        Photos are turned upright, scaled and cropped as for `predict`, so that both give the same
        clusters. One that cannot be read is an error.
        """
        samples = self.open_new(source, Monitor())
        if samples.images is None:
            raise InputError(f"The model of {self.path} takes rows, not images.")
        if (backbone := self.backbone("cpu")) is None:
            images = samples.for_recipe(source, self.model("cpu").recipe_).pictures
            return images.read(np.arange(len(images)))
        if backbone.mean is None:
            raise InputError(f"{backbone.name} has its own transform, which is not exported.")
        from probagg.app.embed.pictures import pictures_of

        rows = np.arange(len(samples))
        pictures = pictures_of(samples.pictures, backbone.near).items(rows, [None] * len(rows))
        found = []
        for name, item in zip(samples.names, pictures, strict=True):
            try:
                found.append(backbone.prepare(item.picture()))
            except BadImage as bad:
                raise NoData(f"{name} cannot be read: {bad}. Leave it out.") from bad
        # The network's input, without the normalisation that the exported model has.
        values = np.stack(found).transpose(0, 2, 3, 1) * backbone.std + backbone.mean
        return np.round(255.0 * values).clip(0, 255).astype(np.uint8)

    def _inferred(self, source: Any, device: str, monitor: Monitor) -> tuple[Samples, Any, Any]:
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
            samples = opened.embed_images(samples, backbone, monitor)
            return samples, samples.X, model.predict_proba(samples.X)
        samples = opened.readable(samples.for_recipe(source, model.recipe_), monitor)
        return samples, *model.infer(samples.pictures)

    @property
    def preparation(self) -> Preparation | None:
        """How the columns of a table became numbers; None for other runs."""
        file = self._file(FILE)
        return Preparation.load(file) if file.is_file() else None

    def open_new(self, source: Any, monitor: Monitor) -> Samples:
        """Open new samples: images, or rows prepared as those of the run; not of another kind."""
        wanted, preparation = self.config["kind"], self.preparation
        samples = opened.open_samples(source, monitor, prefer=wanted)
        if (samples.kind == "images") != (wanted == "images"):
            noun = "images" if wanted == "images" else "a matrix"
            raise NoData(f"The model in {self.path} is of {noun}. Give the same kind to predict.")
        if samples.images is not None:
            return samples
        if preparation is None:
            return samples.select(self.config.get("columns"))
        prepared = preparation.apply(samples.as_table())
        for line in prepared.lines:
            monitor.say(line)
        return samples.prepared(preparation, prepared)

    def __repr__(self) -> str:
        result = self.result
        noun = "images" if self.config["kind"] == "images" else "rows"
        return (
            f"Run({str(self.path)!r}: {result['n_samples']:,} {noun} in {result['n_clusters']} "
            f"clusters by {result['method'].upper()})"
        )

    @cached_property
    def result(self) -> dict[str, Any]:
        """The summary of the run: sizes, scores, seconds."""
        return read_result(self._file(RESULT).parent)

    @property
    def assignments(self) -> Assignments:
        """The table of the run with the review applied: one entry per sample in each column."""
        files = [self._file(name) for name in (ASSIGNMENTS, REVIEW)]
        version = [file_version(file) for file in files]
        if self._assignments is None or self._assignments[0] != version:
            table = read_assignments(files[0].parent, self.n_clusters)
            self._assignments = version, self.review.apply(table)
        return self._assignments[1]

    @property
    def embeddings(self) -> np.ndarray | None:
        """The features of the images, (n, D), memory-mapped; None for a matrix."""
        return read_features(self._file(FEATURES).parent)

    def select(self, n: int = 100) -> Assignments:
        """Return the samples to look at first, at most n, in this order.

        In turn they are typical of a cluster, borderline, and spread over all samples. Only one of
        a group of near-duplicates is among them, and none that a person moved or discarded.
        """
        if n < 1:
            raise InputError(f"n is {n}, but at least 1 sample is needed.")
        table, contents = self.assignments, read_contents(self._file(ASSIGNMENTS).parent)
        try:
            X = self.clustered_rows(len(table))
        except (ProbaggError, OSError):
            # The table that was clustered is gone or another one.
            X = None
        return table.only(look_first(contents, X, n))

    def similar(self, source: Any, n: int = 20, *, device: str = "auto") -> Assignments:
        """Return the n samples of the run that are most similar to one, the nearest first.

        `source` is the name of a sample of the run, or one new sample, as for `predict`. The
        column `distance` is that to it: 1 - cosine of features, or as the clusters' metric is.
        """
        if n < 1:
            raise InputError(f"n is {n}, but at least 1 sample is needed.")
        table = self.assignments
        X, metric = self._compared_rows(len(table))
        own = None
        if isinstance(source, str) and source in table.names:
            own = table.names.index(source)
            x = X[own : own + 1]
        else:
            samples, x, _ = self._inferred(source, device, Monitor())
            if len(samples) != 1:
                raise InputError(
                    f"{samples.source or 'The source'} has {len(samples):,} {samples.noun}, but "
                    "one is needed. Give a single file, row or name of a sample of the run."
                )
        rows, distances = most_similar(X, x, n, metric, own)
        return replace(table.only(rows), distance=distances)

    def _compared_rows(self, n_samples: int) -> tuple[Any, str]:
        """Return the rows as they were clustered, which must be there, and the metric."""
        X = self.clustered_rows(n_samples)
        if X is None:
            raise NoData(
                f"The rows of the run in {self.path} were in memory and are not in its folder. Do "
                "this in the program that clusters them, or cluster a file."
            )
        return X, self.yardstick.metric

    def refine(
        self,
        *,
        out: str | PathLike[str] | None = None,
        report: bool = True,
        overwrite: bool = False,
        verbose: int = 0,
    ) -> Run:
        """Cluster again with what the review holds, and return the new run; this one stays.

        Samples that a person moved keep their clusters, and so do the most typical quarter of each
        cluster; the others are decided anew, without discarded ones. Merged clusters stay merged,
        and parts of split ones are clusters. Numbers and names stay. `result["refined"]` and
        changes.csv say what moved.

        `out` is the new run's folder, by default RUN-refined beside this one.
        """
        return self.refine_with(LogMonitor() if verbose else Monitor(), out, report, overwrite)

    def refine_with(self, monitor: Monitor, out: Any, report: bool, overwrite: bool) -> Run:
        """Refine, with messages to a monitor (see `refine`)."""
        folder = self._successor(out, "refined", overwrite)
        parent = self._parent(monitor)
        clustering, review, changes = refine_run(parent)
        for line in changes.lines(parent.samples.noun):
            monitor.say(line)
        write_successor(parent, folder, clustering, review, monitor, report=report)
        rows = None if clustering.samples.images is not None else clustering.X
        return Run(folder.path, images=self._images, rows=rows, trust_code=self._trust_code)

    def update(
        self,
        source: Any,
        *,
        out: str | PathLike[str] | None = None,
        new_clusters: str = "review",
        device: str = "auto",
        report: bool = True,
        overwrite: bool = False,
        verbose: int = 0,
    ) -> Run:
        """Add new samples, and return a new run of all; nothing that was clustered changes.

        `source` is a folder of photos in or beside that of the run, or the table or matrix that was
        clustered with more rows. New samples join the clusters. Those that fit nowhere, by the
        distance to their nearest samples, are clustered among themselves: as new clusters in the
        review, which `refine` turns into clusters of the model; at once (`new_clusters="auto"`); or
        not at all ("none").
        `result["updated"]` has the counts and the drift: sizes and mean distances per cluster.

        `out` is the new run's folder, by default RUN-updated beside this one.
        """
        monitor = LogMonitor() if verbose else Monitor()
        return self.update_with(monitor, source, out, new_clusters, device, report, overwrite)

    def update_with(
        self,
        monitor: Monitor,
        source: Any,
        out: Any,
        new_clusters: str,
        device: str,
        report: bool,
        overwrite: bool,
    ) -> Run:
        """Update, with messages to a monitor (see `update`)."""
        if new_clusters not in NEW_CLUSTERS:
            raise InputError(
                f"new_clusters is {new_clusters!r}; possible are {', '.join(NEW_CLUSTERS)}."
            )
        folder = self._successor(out, "updated", overwrite)
        is_images = self.config["kind"] == "images"
        parent = self._parent(monitor) if is_images else self._parent_in(source, monitor)
        parent.check("update")
        joined = parent.samples
        if is_images:
            parent, joined = self._with_photos(parent, source, device, monitor)
        if len(joined) == len(parent.assigned):
            raise NoData(
                f"{joined.source or 'The source'} has no samples that are not in the run in "
                f"{self.path}. Give new ones."
            )
        model = self.model(device)
        P = np.array(model.predict_proba(joined.X), np.float64)
        clustering, review, found = update_run(
            parent, joined, P, model, self.yardstick, new_clusters
        )
        for line in update_lines(found, joined.noun):
            monitor.say(line)
        write_successor(parent, folder, clustering, review, monitor, report=report)
        rows = None if is_images else clustering.X
        return Run(folder.path, rows=rows, trust_code=self._trust_code)

    def _with_photos(
        self, parent: Parent, source: Any, device: str, monitor: Monitor
    ) -> tuple[Parent, Samples]:
        """Return this run and its photos with new ones, by names in one folder."""
        place, old = opened.place_of(source), self.config.get("source")
        if place is None or old is None or not Path(place).is_dir() or not Path(old).is_dir():
            raise InputError(
                f"update takes a folder of photos for a run of a folder, but was given {source} "
                f"for one of {old or 'images in memory'}. Put the photos into a folder."
            )
        home, prefix = Path(old), ""
        if not Path(place).is_relative_to(home):
            home, prefix = home.parent, f"{home.name}/"
            if Path(place).parent != home:
                raise InputError(
                    f"{place} lies neither in {old}, which was clustered, nor beside it in {home}. "
                    "Move the new photos there."
                )
        table, files = parent.assigned, dict(parent.files)
        if prefix:
            # Its names of photos are no longer right.
            files.pop(DUPLICATES, None)
        names = [prefix + name for name in table.names]
        review = parent.review.renamed_samples(prefix)
        new = opened.embed_images(self.open_new(source, monitor), self.backbone(device), monitor)
        for line in new.left_out():
            monitor.say(line)
        found, known = new.names_in(str(home)) or [], set(names)
        fresh = [row for row, name in enumerate(found) if name not in known]
        classes: dict[str, str] = {}
        for some, called in ((parent.samples, names), (new, found)):
            if some.classes is not None:
                pairs = zip(called, some.classes.y.tolist(), strict=True)
                classes |= {name: some.classes.names[k] for name, k in pairs if k >= 0}
        joined = Samples(
            source=str(home),
            names=names + [found[row] for row in fresh],
            heading="path",
            X=np.concatenate([parent.samples.X, new.X[fresh]]),
            images=open_images(home),
        ).label(classes or None)
        parent = replace(parent, assigned=replace(table, names=names), review=review, files=files)
        return parent, joined

    def _parent_in(self, source: Any, monitor: Monitor) -> Parent:
        """Return this run with the samples of a table that has its rows and more, those first."""
        contents = read_contents(self._file(ASSIGNMENTS).parent)
        samples, table = self.open_new(source, monitor), contents.assigned
        places = {name: row for row, name in enumerate(samples.names)}
        if missing := [name for name in table.names if name not in places]:
            raise NoData(
                f"{samples.source or 'The source'} has {len(samples):,} rows, without "
                f"{len(missing):,} of those that were clustered, such as {missing[0]}. Give a "
                "table with all of them and the new ones."
            )
        known = set(table.names)
        order = [places[name] for name in table.names]
        order += [row for name, row in places.items() if name not in known]
        if order != list(range(len(samples))):
            samples = samples.in_order(order)
        return self._parent_of(contents, samples)

    def _successor(self, out: Any, word: str, overwrite: bool) -> RunFolder:
        """Return the folder of a run that is made from this one, which must not be this one."""
        path = beside(self.path, word) if out is None else Path(out)
        if path.resolve() == self.path.resolve():
            raise InputError(f"--out {path} is the run itself. Name another folder, or none.")
        folder = RunFolder(path, overwrite=overwrite)
        folder.check()
        return folder

    def _parent(self, monitor: Monitor) -> Parent:
        """Return this run as a new one is made from it; its samples must still be there."""
        contents = read_contents(self._file(ASSIGNMENTS).parent)
        table, source = contents.assigned, self.config.get("source")
        if self.config["kind"] == "images":
            X, _ = self._compared_rows(len(table))
            images, why = find_images(contents, self._images)
            if images is None:
                raise NoData(
                    f"The images of the run in {self.path} cannot be read: {why} Put them back, or "
                    "cluster them again."
                )
            samples = Samples(source, table.names, table.heading, X, images)
        elif source is not None:
            samples = self.open_new(source, monitor)
            if samples.names != table.names:
                raise NoData(
                    f"{source} no longer has the {len(table):,} rows that were clustered, but "
                    f"{len(samples):,}. Restore it, or cluster it again."
                )
        else:
            X, _ = self._compared_rows(len(table))
            columns = self.config.get("columns")
            samples = Samples(None, table.names, table.heading, X, columns=columns)
        return self._parent_of(contents, samples)

    def _parent_of(self, contents: Contents, samples: Samples) -> Parent:
        """Return this run, of these samples."""
        if (classes := self._file("classes.csv")).is_file():
            samples = replace(samples, classes=classes_of(classes, samples.names))
        files = {name: self._file(name) for name in CARRIED}
        return Parent(
            path=self.path,
            config=self.config,
            n_clusters=contents.n_clusters,
            samples=samples,
            assigned=contents.assigned,
            review=contents.review,
            representatives=contents.representatives if self.config.get("deduplicate") else None,
            files={name: read_bytes(file) for name, file in files.items() if file.is_file()},
        )

    def evaluate(self, labels: Any = None) -> dict[str, Any]:
        """Compare the clusters with known classes: ACC, NMI, ARI, the confusion, each cluster.

        `labels` is a CSV file of path,class (rows: row,class), in which paths may be absolute and a
        header may name more columns, a mapping from names to classes, or one class per sample;
        without it, the classes that the source had. Samples that a person discarded do not count.
        """
        if labels is None and not (labels := self._file("classes.csv")).is_file():
            raise NoData(
                f"The run in {self.path} has no known classes. Give them as labels (--labels "
                "truth.csv with lines of path,class)."
            )
        found = compare_with_classes(
            self.assignments,
            labels,
            n_clusters=self.n_clusters,
            review=self.review,
            folder=self.config.get("source"),
        )
        return {"run": str(self.path), **found}

    def report(self) -> Path:
        """Write report.html and return its path."""
        return write_report(self.path, images=self._images)

    def write_reviewed_table(self) -> Path:
        """Write the table with the review applied as assignments_reviewed.csv; return its path."""
        table = encode(self.assignments.to_csv())
        return add_to_run(self.path, "assignments_reviewed.csv", table)

    def serve_review(
        self, *, open_browser: bool = True, port: int = 0, on_ready: Any = None
    ) -> None:
        """Serve the page to review the run on 127.0.0.1, until Done is pressed or Ctrl-C.

        `port=0` takes a free one. `on_ready` is called with the address of the page.
        """
        rows = None
        if self.embeddings is None and (self._rows is not None or "source" in self.config):
            rows = partial(self._compared_rows, len(self.assignments))
        session = review_session(self.path, rows)
        serve(session, open_browser=open_browser, port=port, on_ready=on_ready)

    def export(
        self,
        format: str = "onnx",
        out: str | PathLike[str] | None = None,
        *,
        features: bool = False,
        overwrite: bool = False,
    ) -> Path:
        """Write the model or the clusters for other programs; return the path.

        The model is "onnx", one file; `features` leaves out the backbone. The clusters, with names
        and all else that the review changed, at the place that `out` names: "label-studio" and
        "fiftyone", folders, and "anndata", an .h5ad file.

        An earlier model at its default place in the run is replaced, what `out` names only with
        `overwrite`.
        """
        facts = write_export(
            self, format, out, features=features, overwrite=overwrite, monitor=Monitor()
        )
        return Path(facts["folder"] if "folder" in facts else facts["file"])

    def photos(self, names: list[str]) -> tuple[Path, list[Path]]:
        """Return the folder of the photos and the path of each."""
        if isinstance(self._images, FolderImages):
            folder = self._images.folder.resolve()
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
        if "source" in self.config and self._images is None:
            return folder, [photo_of(folder, name) for name in names]
        files = [folder / name for name in names]
        if not all(file.is_relative_to(folder) for file in files) or folder == Path("/"):
            folder = Path(os.path.commonpath([file.parent for file in files]))
        return folder, files

    def clustered_rows(self, n_samples: int) -> Any:
        """Return the features of images, or the rows as they were clustered; None where unknown."""
        X = self._rows if self.embeddings is None else self.embeddings
        if X is None and "source" in self.config:
            X = self.open_new(self.config["source"], Monitor()).X
        if X is not None and X.shape[0] != n_samples:
            raise NoData(
                f"{self.config.get('source')} now has {X.shape[0]:,} rows, but {n_samples:,} were "
                "clustered. Cluster it again."
            )
        return X

    def sort_images(
        self,
        target: str | PathLike[str],
        *,
        link: bool = False,
        table: Assignments | None = None,
    ) -> int:
        """Copy or link the images into one folder per cluster under `target`; return how many.

        They are all of the run, or those of a `table` of it, such as `select` returns.
        """
        if "source" not in self.config:
            raise InputError("The run was made from data in memory, so there are no files to sort.")
        assigned = self.assignments if table is None else table
        source, names = Path(self.config["source"]), self.review.names
        clusters = assigned.cluster.tolist()
        return sort_images(source, assigned.names, clusters, names, Path(target), link=link)


def open_run(path: str | PathLike[str], *, trust_code: bool = False) -> Run:
    """Open a run folder that `probagg cluster` wrote.

    `trust_code` allows the run's backbone to be a "module:function", which is then imported and
    called, or a network that timm loads from a folder or an "hf-hub:" name: pass it only for runs
    whose maker you trust.
    """
    return Run(path, trust_code=trust_code)


def compare_with_classes(
    assigned: Assignments,
    labels: Any,
    *,
    n_clusters: int,
    review: Review,
    folder: str | None = None,
) -> dict[str, Any]:
    """Return ACC, NMI, ARI, the confusion and the main class of each cluster.

    `review` names the clusters; `labels` and `folder` are as for `classes_of`.
    """
    classes = classes_of(labels, assigned.names, folder)
    # Discarded samples do not count.
    known = classes.known & (assigned.cluster >= 0)
    if not known.any():
        raise NoData(
            f"No class is known of any of the {len(known):,} samples that were not discarded. Give "
            "labels that name them as assignments.csv does (--labels truth.csv with lines of "
            "path,class or row,class), or one class per sample."
        )
    clusters, y = assigned.cluster[known], classes.y[known]
    counts = np.zeros((review.n_numbers(n_clusters), len(classes.names)), int)
    np.add.at(counts, (clusters, y), 1)
    return {
        "n_samples": len(known),
        "n_labelled": int(known.sum()),
        **evaluate(y, clusters),
        "classes": classes.names,
        "clusters": [
            {
                "cluster": k,
                "name": review.name_of(k),
                "size": int(row.sum()),
                "class": classes.names[row.argmax()],
                "purity": float(row.max() / row.sum()),
            }
            for k, row in enumerate(counts)
            if row.sum()
        ],
        "confusion": counts.tolist(),
    }


def evaluate_table(path: Path, labels: Any) -> dict[str, Any]:
    """Compare a table with known classes, as a run's.

    It is one that `probagg predict --out` wrote, or a CSV file of names and clusters.
    """
    if labels is None:
        raise NoData(
            f"{path} is a table without known classes. Give them as labels (--labels truth.csv "
            "with lines of path,class or row,class)."
        )
    with open_regular(path) as file:
        is_ours = ",".join(COLUMNS).encode() in file.readline(10_000)
    if is_ours:
        assigned = Assignments.read(path, MAX_CLUSTERS)
    else:
        names, found = zip(*read_pairs(path), strict=True)
        clusters = Classes.of_text(found)
        assigned = Assignments.given(names, clusters.y, clusters.names)
    K, review = int(assigned.cluster.max()) + 1, Review(names=assigned.cluster_names)
    return {"run": str(path), **compare_with_classes(assigned, labels, n_clusters=K, review=review)}


def write_export(
    run: Run,
    format: str,
    out: str | PathLike[str] | None,
    *,
    features: bool,
    overwrite: bool = False,
    monitor: Monitor,
) -> dict[str, Any]:
    """Write a run for others (see `Run.export`); return its file or folder, size and names."""
    if format not in FORMATS:
        raise InputError(f"The format is {format!r}; possible are {', '.join(FORMATS)}.")
    if format in TOOLS:
        if features:
            raise InputError(f"features is for models, but the format is {format}. Drop it.")
        return write_handover(run, format, out, overwrite=overwrite, monitor=monitor)
    if features and "embed" not in run.config:
        raise InputError(
            f"features leaves out the backbone, but the run in {run.path} has none. Drop it."
        )
    home = run.path / MODEL
    path = home if out is None else Path(out)
    # At its own place it is part of the run, and an earlier one is replaced without asking.
    output = None if path.resolve() == home.resolve() else Output(path, overwrite).check()
    names = cluster_names(run.review, run.review.n_numbers(run.n_clusters))
    facts = {"run": str(run.path), "format": format, "names": names}
    return facts | _write_onnx(run, output, features, names, monitor)


def _write_onnx(
    run: Run, output: Output | None, features: bool, names: list[str], monitor: Monitor
) -> dict[str, Any]:
    """Write one file that maps pixels or features to probabilities, by default into the run."""
    from probagg.app.export.onnx import export_onnx, labeller_of

    # A set that is not a folder of photos has images of one size.
    size = run.config.get("image_size")
    labeller = labeller_of(
        run.model("cpu"),
        backbone=None if features else run.backbone("cpu"),
        groups=run.review.groups(run.n_clusters),
        splits=run.review.splits,
        size=size and tuple(size),
    )
    description = f"probagg export of {run.path}"
    path = output.path if output else run.path / MODEL
    data, difference = export_onnx(labeller, names=names, description=description)
    monitor.say(f"onnxruntime and PyTorch agree to {difference:.1e}")
    if output:
        output.write(data)
    else:
        add_to_run(run.path, path.name, data)
    monitor.say(f"{labeller.takes.name}: {labeller.takes.words}.")
    if (preparation := run.preparation) is not None:
        monitor.say(f"features are prepared columns ({FILE}): {', '.join(preparation.outputs)}")
    monitor.say(f"column k is cluster k: {', '.join(f'{k} {names[k]}' for k in labeller.clusters)}")
    if merged := sorted(set(range(len(names))) - set(labeller.clusters)):
        monitor.say(
            f"merged, split or made of moved samples, so always 0: {', '.join(map(str, merged))}"
        )
    monitor.say(f"written to {path} ({len(data) / 1e6:.1f} MB, {len(names)} clusters)")
    return {"file": str(path), "difference": difference, "bytes": len(data)}


def write_handover(
    run: Run,
    format: str,
    out: str | PathLike[str] | None,
    *,
    overwrite: bool,
    monitor: Monitor,
    table: Assignments | None = None,
) -> dict[str, Any]:
    """Write the clusters of a run for a tool (see `Run.export`); return path, size and names.

    Folders may be of some samples only, those of `table`.
    """
    if out is None:
        raise InputError(
            f"The format {format} has no place in a run. Name one: --out NAME"
            f"{SUFFIX if format == ANNDATA else '/'} (out)."
        )
    path = Path(out)
    facts: dict[str, Any] = {"run": str(run.path), "format": format}
    if format in FOLDERS:
        check_target(path)
        labelled = labelled_of(run, table)
        with whole_folder(path.resolve()) as folder:
            lines = FOLDERS[format](labelled, folder)
        facts |= {"folder": str(path), "bytes": sum(p.stat().st_size for p in path.iterdir())}
    else:
        if path.suffix.lower() != SUFFIX:
            raise InputError(
                f"--out {path} is to be a file of AnnData, whose name ends in {SUFFIX}. Name it "
                f"so: {path.with_suffix(SUFFIX)}"
            )
        source = run.config.get("source")
        output = Output(path, overwrite, () if source is None else (Path(source),)).check()
        labelled = labelled_of(run)
        with whole_file(output.path) as file:
            lines = _write_anndata(run, labelled, file)
        facts |= {"file": str(path), "bytes": path.stat().st_size}
    for line in lines:
        monitor.say(line.replace("PATH", str(path)))
    monitor.say(f"written to {path} ({facts['bytes'] / 1e6:.1f} MB)")
    return facts | {"names": labelled.names}


def _write_anndata(run: Run, labelled: Labelled, file: Path) -> list[str]:
    """Write the clusters and their probabilities; return what to say about it."""
    X = run.clustered_rows(len(labelled.assigned))
    if X is None:
        warn_user(
            "The file has no probabilities of all clusters: the rows of this run were in memory "
            "and are not in its folder. Export in the program that clusters them, or cluster a "
            "file."
        )
    source = Path(run.config.get("source", ""))
    return write_anndata(
        labelled,
        file,
        X=X,
        P=None if X is None else probabilities_of_run(run, X),
        source=source if source.suffix.lower() == ".h5ad" else None,
    )


def labelled_of(run: Run, table: Assignments | None = None) -> Labelled:
    """Return what a tool is given of a run, or of the samples of a table of it."""
    assigned, features = run.assignments, run.embeddings
    if table is not None:
        places = {name: row for row, name in enumerate(assigned.names)}
        features = None if features is None else features[[places[n] for n in table.names]]
        assigned = table
    folder, files = run.photos(assigned.names) if assigned.heading == "path" else (None, None)
    return Labelled(
        run=run.path.resolve().name,
        assigned=assigned,
        names=cluster_names(run.review, run.review.n_numbers(run.n_clusters)),
        folder=folder,
        files=files,
        features=features,
    )


def cluster_names(review: Review, n_clusters: int) -> list[str]:
    """Return the name of each cluster, by number, merged ones too; all are different.

    >>> from probagg.app.review import Review
    >>> cluster_names(Review(names={0: "cats"}, merged={2: 0}), 3)
    ['cats', 'cluster 1', 'cluster 2']
    """
    return unique_names([review.name_of(k) for k in range(n_clusters)])


def probabilities_of_run(run: Run, X: Any) -> np.ndarray:
    """Return P (n, numbers) of the model for the run's own features, after merges and splits."""
    model = run.model("cpu")
    if run.config["method"] == "dpac":
        from probagg.app.export.onnx import head_probabilities  # torch is slow to import

        P = head_probabilities(model, X)
    else:
        P = model.predict_proba(X)
    review = run.review
    found = np.zeros((len(P), review.n_numbers(run.n_clusters)))
    np.add.at(found, (np.arange(len(P))[:, None], review.regions(run.n_clusters, X)), P)
    return found
