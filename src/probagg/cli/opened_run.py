"""A finished run or its compact export, opened to label new samples."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probagg.assignments import Assignments
from probagg.cli import samples as opened
from probagg.cli.compact import is_compact
from probagg.cli.samples import Samples, is_image_source
from probagg.data import benchmarks
from probagg.errors import NoData
from probagg.review import Review
from probagg.run.contents import ASSIGNMENTS, read_review
from probagg.run.folder import MANIFEST, RunFolderError
from probagg.storage import decode
from probagg.yardstick import Yardstick

CONFIG = "config.toml"


@dataclass(frozen=True)
class OpenedRun:
    """The model of a run folder or of a compact export, and what a person made of its clusters."""

    path: Path
    config: dict[str, Any]
    review: Review
    model_path: Path
    trust_code: bool = False  # whether a backbone may be Python code that the run names

    @classmethod
    def to_predict(cls, path: Path, *, trust_code: bool = False) -> OpenedRun:
        """Open a run folder or a compact export: either has what new samples need."""
        if not is_compact(path):
            return cls.of(path, trust_code=trust_code)
        # All that predict must know of a network that DPAC.save wrote without a run.
        config: dict[str, Any] = {"method": "dpac", "kind": "images"}
        if (path / CONFIG).is_file():
            config |= _read_config(path)
        return cls(path, config, read_review(path), model_path=path, trust_code=trust_code)

    @classmethod
    def of(cls, path: Path, *, trust_code: bool = False) -> OpenedRun:
        """Open a run folder, or say why it is none."""
        if is_compact(path):
            raise NoData(
                f"{path} is a compact export: it holds a model for probagg predict and no "
                "assignments. Name the run folder that it was made from."
            )
        if not path.is_dir():
            raise NoData(f"{path} is no run folder. Name one that probagg cluster wrote.")
        if not (path / CONFIG).is_file():
            raise NoData(f"{path} holds no run (no config.toml). Name a folder of probagg cluster.")
        if not (path / MANIFEST).is_file():
            raise RunFolderError(
                f"The run in {path} is not finished. Run its probagg cluster command again first."
            )
        model = path / "model.safetensors"
        return cls(path, _read_config(path), read_review(path), model, trust_code)

    @property
    def n_clusters(self) -> int:
        """K."""
        return int(self.config["n_clusters"])

    @property
    def names(self) -> dict[int, str]:
        """What a person called the clusters, by number."""
        return dict(self.review.names)

    def model(self, device: str = "auto") -> Any:
        """The estimator that the run fitted."""
        file, method = self.model_path, self.config["method"]
        if method == "pac":
            from probagg import PAC

            return PAC.load(file)
        if method == "opa":
            from probagg import OPAHead

            return OPAHead.load(file)
        from probagg import DPAC

        return DPAC.load(file, device=device)

    def backbone(self, device: str = "auto") -> Any:
        """The network whose features were clustered, checked to be the same; None for others."""
        if "embed" not in self.config:
            return None
        from probagg.embed import reopen_backbone

        return reopen_backbone(self.config["embed"], device, trust_code=self.trust_code)

    def assignments(self) -> Assignments:
        """The table of the run."""
        return Assignments.read(self.path / ASSIGNMENTS, self.n_clusters)

    def reviewed_table(self) -> str:
        """The table of the run as a person left it: merged, moved and named."""
        return self.review.apply(self.assignments()).to_csv()

    def assign(self, source: str, *, device: str, loud: bool) -> tuple[Samples, Assignments]:
        """New samples through the model: nothing is fitted again."""
        model, yardstick = self.model(device), self.yardstick
        if self.config["kind"] == "matrix":
            samples = opened.open_matrix(source).take(self.config.get("columns"))
            X, P = samples.features, model.predict_proba(samples.features)
        elif (backbone := self.backbone(device)) is not None:
            samples = opened.open_image_samples(source, loud=loud)
            samples = opened.embed_images(samples, backbone, loud=loud)
            X, P = samples.features, model.predict_proba(samples.features)
        else:
            samples = opened.open_for_recipe(source, model.recipe_, loud=loud)
            samples = opened.readable(samples, loud=loud)
            X, P = model.infer(samples.pictures)
        groups, heading = self.review.groups(P.shape[1]), samples.heading
        assigned = Assignments.of(P, X, yardstick, samples.names, groups, heading=heading)
        home = self.config.get("source")  # none of a network that was saved without a run
        known = None if home is None else samples.names_in(home)  # moves are of these samples
        return samples, self.review.apply(assigned, known or [])

    @property
    def yardstick(self) -> Yardstick | None:
        """What measures distances of new samples; None where a model was saved without it."""
        file = self.path / "yardstick.safetensors"
        return Yardstick.load(file) if file.is_file() else None


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(decode((path / CONFIG).read_bytes()))
    except tomllib.TOMLDecodeError as error:
        raise NoData(
            f"{path / CONFIG} is damaged ({error}). Copy the whole folder there again."
        ) from error


def check_kind(run: OpenedRun, source: str) -> None:
    """Refuse images for a model of rows, and the other way round; some named sets are both."""
    if source in benchmarks.NAMES and source in benchmarks.IMAGE_NAMES:
        return
    images = is_image_source(source)
    if images != (run.config["kind"] == "images"):
        wanted = "images" if run.config["kind"] == "images" else "a matrix"
        raise NoData(f"The model in {run.path} is of {wanted}. Give the same kind to predict.")
