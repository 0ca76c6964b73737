"""Run: a finished run folder and all that can be done with it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from probagg.app.assignments import COLUMNS, Assignments
from probagg.app.review import Review
from probagg.app.run.contents import ASSIGNMENTS, MAX_CLUSTERS, read_contents
from probagg.app.run.folder import add_to_run
from probagg.app.run.handover import write_export
from probagg.app.run.opened import OpenedRun
from probagg.app.run.output import photo_of, sort_images, write_sidecar
from probagg.app.run.pages import write_report
from probagg.app.run.samples import classes_of
from probagg.app.run.selection import look_first, most_similar
from probagg.app.run.server import serve
from probagg.app.run.session import Session
from probagg.app.run.successor import NEW_CLUSTERS, refined, updated, write_successor
from probagg.data.labels import Classes, read_pairs
from probagg.data.photo import BadImage
from probagg.errors import InputError, NoData, ProbaggError, warn_user
from probagg.metrics import evaluate
from probagg.progress import Monitor
from probagg.storage import encode, open_regular


class Run(OpenedRun):
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

    def predict(self, source: Any, *, device: str = "auto", verbose: int = 0) -> Assignments:
        """Return the clusters of new samples: images or rows, as for `probagg.cluster`.

        Nothing is fitted again. Files that cannot be read are left out with a warning. Another says
        where many samples are outliers, which fit no cluster.
        """
        samples, assigned = self.assign(source, device, Monitor(verbose > 0))
        for line in samples.left_out():
            warn_user(line)
        if assigned.is_foreign():
            warn_user(assigned.fit_line())
        return assigned

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
        from probagg.app.embed.features import pictures_of

        pictures = pictures_of(samples.pictures, backbone.near).items(np.arange(len(samples)))
        found = []
        for name, item in zip(samples.names, pictures, strict=True):
            try:
                found.append(backbone.prepare(item.picture()))
            except BadImage as bad:
                raise NoData(f"{name} cannot be read: {bad}. Leave it out.") from bad
        # The network's input, without the normalisation that the exported model has.
        values = np.stack(found).transpose(0, 2, 3, 1) * backbone.std + backbone.mean
        return np.round(255.0 * values).clip(0, 255).astype(np.uint8)

    def select(self, n: int = 100) -> Assignments:
        """Return the samples to look at first, at most n, in this order.

        In turn they are typical of a cluster, borderline, and spread over all samples. Only one of
        a group of near-duplicates is among them, and none that a person moved or discarded.
        """
        if n < 1:
            raise InputError(f"n is {n}, but at least 1 sample is needed.")
        table, contents = self.assignments, read_contents(self.file(ASSIGNMENTS).parent)
        try:
            X = self.clustered_rows()
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
        X, metric = self.compared_rows()
        own = None
        if isinstance(source, str) and source in table.names:
            own = table.names.index(source)
            x = X[own : own + 1]
        else:
            samples, x, _ = self.infer(source, device, Monitor())
            if len(samples) != 1:
                raise InputError(
                    f"{samples.source or 'The source'} has {len(samples):,} {samples.noun}, but "
                    "one is needed. Give a single file, row or name of a sample of the run."
                )
        rows, distances = most_similar(X, x, n, metric, own)
        return replace(table.only(rows), distance=distances)

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
        make = partial(refined, self)
        return write_successor(self, "refined", make, out, report, overwrite, verbose)

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
        if new_clusters not in NEW_CLUSTERS:
            raise InputError(
                f"new_clusters is {new_clusters!r}; possible are {', '.join(NEW_CLUSTERS)}."
            )
        make = partial(updated, self, source, new_clusters=new_clusters, device=device)
        return write_successor(self, "updated", make, out, report, overwrite, verbose)

    def evaluate(self, labels: Any = None) -> dict[str, Any]:
        """Compare the clusters with known classes: ACC, NMI, ARI, the confusion, each cluster.

        `labels` is a CSV file of path,class (rows: row,class), in which paths may be absolute and a
        header may name more columns, a mapping from names to classes, or one class per sample;
        without it, the classes that the source had. Samples that a person discarded do not count.
        """
        if labels is None and not (labels := self.file("classes.csv")).is_file():
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
        return write_report(self.path, images=self.images)

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
        if self.embeddings is None and (self.rows is not None or "source" in self.config):
            rows = self.compared_rows
        serve(Session(self.path, rows), open_browser=open_browser, port=port, on_ready=on_ready)

    def export(
        self,
        format: str = "onnx",
        out: str | PathLike[str] | None = None,
        *,
        overwrite: bool = False,
        half: bool = False,
    ) -> Path:
        """Write the model or the clusters for other programs; return the path.

        The model is "onnx", one file from pixels to probabilities; with `half` its weights are
        float16, so that the file is about half as large and probabilities change slightly. The
        clusters, with names and all else that the review changed, are "label-studio", in the folder
        that `out` names.

        An earlier model at its default place in the run is replaced, what `out` names only with
        `overwrite`.
        """
        facts = write_export(self, format, out, overwrite, half)
        return Path(facts["folder"] if "folder" in facts else facts["file"])

    def sort_images(
        self,
        target: str | PathLike[str],
        *,
        link: bool = False,
        xmp: bool = False,
        keep_best: bool = False,
    ) -> int:
        """Copy or link the images into one folder per cluster under `target`; return how many.

        With `xmp` a sidecar beside each has the name of its cluster as a keyword. `keep_best`
        leaves out all near-duplicates but the largest of the sharp ones.
        """
        source, assigned = self._photos("sort"), self.assignments
        contents = read_contents(self.file(ASSIGNMENTS).parent) if keep_best else None
        if contents is not None and contents.representatives is not None:
            from probagg.app.embed.duplicates import best_photos  # torch is slow to import

            first = dict(zip(contents.samples.names, contents.representatives, strict=True))
            rows = np.flatnonzero(assigned.cluster >= 0)
            groups = [first[assigned.names[row]] for row in rows]
            photos = [photo_of(source, assigned.names[row]) for row in rows]
            assigned = assigned.only(rows[best_photos(photos, groups)])
        clusters, names = assigned.cluster.tolist(), self.review.names
        folders = self.config.get("folders", ())
        return sort_images(
            source,
            assigned.names,
            clusters,
            names,
            Path(target),
            link=link,
            xmp=xmp,
            folders=folders,
        )

    def write_sidecars(self) -> tuple[int, list[str]]:
        """Write an XMP sidecar beside each photo, with the name of its cluster as a keyword.

        Return how many, and the names of photos that have one, which stays.
        """
        source, table, review = self._photos("write keywords for"), self.assignments, self.review
        photos = [(name, k) for name, k in zip(table.names, table.cluster, strict=True) if k >= 0]
        skipped = [
            name
            for name, k in photos
            if not write_sidecar(photo_of(source, name), review.name_of(k))
        ]
        return len(photos) - len(skipped), skipped

    def _photos(self, what: str) -> Path:
        """Return the source of the run, a folder of photos."""
        if "source" not in self.config:
            raise InputError(
                f"The run was made from data in memory, so there are no files to {what}."
            )
        return Path(self.config["source"])


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
