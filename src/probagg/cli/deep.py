"""Images clustered by DPAC, as a run that can be left and taken up."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from probagg.cli.outcome import Clustering, begin, scores
from probagg.cli.samples import open_for_recipe, readable
from probagg.cli.terminal import ProgressLine
from probagg.data import benchmarks
from probagg.errors import InputError

if TYPE_CHECKING:
    from probagg.cli.job import Job
    from probagg.run.folder import RunFolder

BESIDE = 10**8  # numbers of which PAC beside DPAC still takes seconds


class Deep:
    """DPAC on images; of several processes only the first one writes and speaks."""

    method = "dpac"

    def __init__(self, job: Job, options: dict[str, Any]) -> None:
        from probagg import DPAC, Recipe

        self.job = job
        self.first = os.environ.get("RANK", "0") == "0"
        loud = job.loud and self.first
        recipe, settings = options.pop("recipe", None), options.pop("set", [])
        if (resume := options.pop("resume", "auto")) not in ("auto", "never"):
            raise InputError(f"--resume is {resume!r}; possible are auto and never.")
        if not isinstance(k := job.clusters(), int):
            raise InputError(
                "DPAC needs to know how many clusters to train for. Choose the number first with "
                "--method pac, or give -k a number."
            )
        self.resume = resume
        self.recipe = Recipe.of(recipe or recipe_of(job.source)).override(settings)
        self.samples = open_for_recipe(job.source, self.recipe, loud=loud).label(job.labels)
        self.dpac = DPAC(
            k,
            recipe=self.recipe,
            out_dir=job.out,
            random_state=job.seed,
            progress=ProgressLine(loud),
            **options,
        )

    def plan(self) -> tuple[str, float]:
        """What will be done in words, and about how many seconds it takes."""
        what = f"{len(self.samples):,} images, DPAC ({self.recipe.name}) trains a network for "
        seconds = self.dpac.estimate(self.samples.pictures)
        return f"{what}{self.dpac.n_clusters} clusters", seconds

    def join(self) -> None:
        """Train as one of the other processes."""
        self.samples = readable(self.samples, loud=False)
        self.dpac.fit(self.samples.pictures)

    def run(self, folder: RunFolder) -> Clustering:
        """Train, or go on with training."""
        self.samples = samples = readable(self.samples, loud=self.job.loud)
        dpac = self.dpac
        if self.resume == "never":
            for name in ("checkpoints", "tensorboard"):
                shutil.rmtree(folder.path / name, ignore_errors=True)
        dpac.check(samples.pictures)  # before the first file replaces an older run
        begin(folder, self._config())
        began = time.perf_counter()
        dpac.fit(samples.pictures)
        seconds = time.perf_counter() - began
        # The model is all that the checkpoints were for.
        shutil.rmtree(folder.path / "checkpoints", ignore_errors=True)
        return Clustering(
            samples=samples,
            P=dpac.probabilities_,
            X=dpac.features_,
            metric=dpac.recipe_.cluster.metric,
            model=dpac,
            seconds=seconds,
            facts={
                "method": "dpac",
                "recipe": dpac.recipe_.name,
                "state": dpac.diagnosis_.state,
                "sharpness": dpac.diagnosis_.sharpness,
                **self._beside(),
            },
        )

    def _config(self) -> dict[str, Any]:
        return {
            "source": self.samples.source,
            "kind": "images",
            "method": "dpac",
            "n_clusters": self.dpac.n_clusters,
            "seed": self.job.seed,
            "image_size": None if self.samples.heading == "path" else self.samples.pictures.size,
            "recipe": asdict(self.recipe),
        }

    def _beside(self) -> dict[str, Any]:
        """PAC on the pixels and on the network's features, scored like DPAC."""
        from probagg.pac.estimator import PAC

        if self.samples.classes is None:
            return {}
        found, data = {}, self.samples.pictures
        inputs = {"features": (self.dpac.features_, "cosine")}
        pixels = int(np.prod((*(data.size or (0,)), data.channels)))
        if len(data) * pixels <= BESIDE:
            rows = data.read(np.arange(len(data))).reshape(len(data), -1).astype(np.float32)
            inputs["pixels"] = (rows, "sqeuclidean")
        for name, (X, metric) in inputs.items():
            pac = PAC(self.dpac.n_clusters, metric=metric, n_init=3, random_state=self.job.seed)
            found[f"pac_on_{name}"] = scores(self.samples, pac.fit(X).labels_)
        return found


def recipe_of(source: str) -> str:
    """A set's own recipe, or that of the set it is like."""
    if source not in benchmarks.IMAGE_NAMES:
        return "own"
    return {"mnist-test": "mnist", "imagenette": "imagenet10", "coil100": "own"}.get(source, source)
