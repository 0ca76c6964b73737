"""The model of a run, opened: what labels new samples."""

from __future__ import annotations

import warnings
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from probagg.app.assignments import Assignments
from probagg.app.review import Review
from probagg.app.run import samples as opened
from probagg.app.run.compact import is_compact
from probagg.app.run.contents import read_config, read_n_clusters, read_review
from probagg.app.run.folder import RunFolderError, is_as_sealed, verified
from probagg.app.run.layout import CONFIG, SMOOTHING, is_being_written, is_finished
from probagg.app.run.monitor import LogMonitor, Monitor
from probagg.app.run.predicted import Predicted
from probagg.app.run.preparation import FILE, Preparation
from probagg.app.run.samples import Samples
from probagg.app.yardstick import Yardstick
from probagg.data import benchmarks
from probagg.data.opening import is_image_source
from probagg.errors import NoData


class RunModel:
    """The model in a run folder or in a compact export, with what a person made of its clusters."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        images: Any = None,
        rows: Any = None,
        trust_code: bool = False,
    ) -> None:
        self.path = Path(path)
        self.is_compact = is_compact(self.path)
        self._images, self._rows, self._trust_code = images, rows, trust_code
        if self.is_compact:
            # All that predict needs of a network that DPAC.save wrote without a run.
            self.config: dict[str, Any] = {"method": "dpac", "kind": "images"}
            if (self.path / CONFIG).is_file():
                self.config |= read_config(self.path)
            return
        if not self.path.is_dir():
            raise NoData(
                f"{path} is not a folder. Name a run folder that probagg cluster wrote, or a "
                "compact export of one."
            )
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
        if not is_as_sealed(self.path, CONFIG):
            warnings.warn(
                f"{self.path / CONFIG} was changed after the run had finished. If you did not "
                "change it, copy the whole run there again.",
                stacklevel=2,
            )

    def _file(self, name: str) -> Path:
        """Return the path of a file after its content was compared with the manifest.

        Files of a compact export contain their checksums.
        """
        return self.path / name if self.is_compact else verified(self.path, name)

    @property
    def review(self) -> Review:
        """What a person changed, as saved last."""
        return read_review(self.path)

    @property
    def n_clusters(self) -> int:
        """K, before merges."""
        return self.config.get("n_clusters") or read_n_clusters(self.path)

    @property
    def yardstick(self) -> Yardstick | None:
        """What measures distances of new samples; None where a model was saved without it."""
        file = self._file("yardstick.safetensors")
        return Yardstick.load(file) if file.is_file() else None

    def model(self, device: str = "auto") -> Any:
        """Return what assigns samples: PAC, `Smoothing` of its clusters, OPAHead or DPAC."""
        import probagg  # by name below: PAC alone needs no torch

        if self.is_compact:
            return probagg.DPAC.load(self.path, device=device)
        if self.config.get("smooth"):
            from probagg.smoothing import Smoothing

            return Smoothing.load(self._file(SMOOTHING))
        method, file = self.config["method"], self._file("model.safetensors")
        if method == "dpac":
            return probagg.DPAC.load(file, device=device)
        return (probagg.PAC if method == "pac" else probagg.OPAHead).load(file)

    def backbone(self, device: str = "auto") -> Any:
        """Return the network whose features were clustered, or None where there is none."""
        if "embed" not in self.config:
            return None
        from probagg.app.embed import reopen_backbone

        return reopen_backbone(self.config["embed"], device, trust_code=self._trust_code)

    def predict(self, source: Any, *, device: str = "auto", verbose: int = 0) -> Assignments:
        """Return the clusters of new samples: images or rows, as for `probagg.cluster`.

        Nothing is fitted again. Files that cannot be read are left out with a warning.
        """
        samples, assigned = self.assign(source, device, LogMonitor() if verbose else Monitor())
        for line in samples.left_out():
            warnings.warn(line, stacklevel=2)
        return assigned

    def assign(self, source: Any, device: str, monitor: Monitor) -> tuple[Samples, Assignments]:
        """Open new samples and assign them (see `predict`)."""
        self.check_kind(source)
        model, yardstick = self.model(device), self.yardstick  # a damaged file fails before work
        if self.config["kind"] == "matrix":
            samples = self._open_rows(source, monitor)
            X, P = samples.features, Predicted(model, samples.features)
        elif (backbone := self.backbone(device)) is not None:
            samples = opened.embed_images(opened.open_pictures(source, monitor), backbone, monitor)
            X, P = samples.features, model.predict_proba(samples.features)
        else:
            samples = opened.open_for_recipe(source, model.recipe_, monitor)
            samples = opened.readable(samples, monitor)
            X, P = model.infer(samples.pictures)
        review = self.review
        K = P.shape[1]
        groups = partial(review.regions, K) if review.splits else review.groups(K)[:K]
        assigned = Assignments.of(P, X, yardstick, samples.names, groups, heading=samples.heading)
        # A sample of the run itself that a person moved stays where it was put.
        names = samples.names_in(self.config.get("source"))
        return samples, review.apply(assigned, names or [])

    @property
    def preparation(self) -> Preparation | None:
        """How the columns of a table became numbers; None for other runs."""
        file = self._file(FILE)
        return Preparation.load(file) if file.is_file() else None

    def _open_rows(self, source: Any, monitor: Monitor) -> Samples:
        """Open new rows, prepared as those of the run."""
        preparation = self.preparation
        if preparation is None:
            samples = opened.open_rows(source, in_parts=self.config["method"] == "pac")
            return samples.select(self.config.get("columns"))
        samples = opened.open_rows(source)
        prepared = preparation.apply(samples.as_table())
        for line in prepared.lines:
            monitor.say(line)
        return samples.prepared(preparation, prepared)

    def check_kind(self, source: Any) -> None:
        """Refuse images for a model of rows, and the other way round; some named sets are both."""
        if (
            isinstance(source, str)
            and source in benchmarks.NAMES
            and source in benchmarks.IMAGE_NAMES
        ):
            return
        wanted = self.config["kind"]
        if is_image_source(source) != (wanted == "images"):
            noun = "images" if wanted == "images" else "a matrix"
            raise NoData(f"The model in {self.path} is of {noun}. Give the same kind to predict.")
