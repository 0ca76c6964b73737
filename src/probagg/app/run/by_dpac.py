"""DPAC on images, as a run that can be interrupted and resumed."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import asdict
from os import PathLike
from typing import TYPE_CHECKING, Any

from probagg.app.run.folder import unfinished
from probagg.app.run.monitor import Monitor
from probagg.app.run.result import Clustering, begin
from probagg.app.run.samples import readable
from probagg.data import named
from probagg.data.opening import is_named
from probagg.errors import InputError
from probagg.progress import duration

if TYPE_CHECKING:
    from probagg.app.run.folder import RunFolder
    from probagg.app.run.options import Request

# Seconds of training from which a GPU is advised.
LONG_ON_A_CPU = 3600.0


class ByDpac:
    """Clustering by DPAC; of several processes only the first one writes and reports."""

    def __init__(self, request: Request) -> None:
        from probagg.dpac.recipe import Recipe

        options = request.options
        self.is_first_process = os.environ.get("RANK", "0") == "0"
        self.monitor = request.monitor if self.is_first_process else Monitor()
        self.request = request
        self.resume = options.resume or "auto"
        if self.resume not in ("auto", "never"):
            raise InputError(f"resume is {self.resume!r}, but auto or never is needed.")
        if not isinstance(k := request.clusters(), int):
            raise InputError(
                "DPAC needs the number of clusters to train for. Choose it first with method pac, "
                "or give a number."
            )
        recipe = options.recipe
        if not isinstance(recipe, Recipe):
            recipe = Recipe.of(recipe or recipe_of(request.source))
        self.recipe = recipe.override(options.settings or [])
        # A named matrix is refused before it is fetched.
        is_matrix = is_named(request.source) and request.source not in named.IMAGE_NAMES
        if is_matrix or (samples := request.open(self.monitor)).kind != "images":
            raise InputError(
                f"{request.title!r} is not a set of images. DPAC takes a folder, an .npz file, an "
                f"array of images, {', '.join(named.IMAGE_NAMES)}."
            )
        from probagg import DPAC  # torch is slow to import

        self.samples = samples.for_recipe(request.data, self.recipe).label(options.labels)
        self.dpac = DPAC(
            k,
            recipe=self.recipe,
            out_dir=unfinished(request.out),
            random_state=request.seed,
            progress=self.monitor.train,
            **options.given("device", "precision", "max_minutes"),
        )

    def plan(self) -> tuple[str, float]:
        """Return what will be done, in words, and roughly how many seconds it takes."""
        what = f"{len(self.samples):,} images, DPAC ({self.recipe.name}) trains a network for "
        seconds = self.dpac.estimate(self.samples.pictures)
        return f"{what}{self.dpac.n_clusters} clusters", seconds

    def advice(self, seconds: float) -> str | None:
        """Return what to do instead where training would take hours on a CPU, or None."""
        from probagg.devices import choose_device

        source = self.request.source
        is_short = seconds < LONG_ON_A_CPU or choose_device(self.dpac.device).type != "cpu"
        if is_short or not isinstance(source, str | PathLike):
            return None
        place, out = shlex.quote(str(source)), shlex.quote(f"{self.request.out}-pac")
        return (
            f"DPAC needs a GPU at this size: on this CPU it takes about {duration(seconds)}. PAC "
            "on the features of a pretrained network takes minutes: probagg cluster "
            f"{place} -k {self.dpac.n_clusters} --method pac --out {out}"
        )

    def join(self) -> None:
        """Train as one of the other processes."""
        self.samples = readable(self.samples, self.monitor)
        self.dpac.fit(self.samples.pictures)

    def run(self, folder: RunFolder) -> Clustering:
        """Train, or resume training."""
        from probagg.dpac.checkpoint import CHECKPOINT_FILES

        folder.resumes_from(*(f"checkpoints/{name}" for name in CHECKPOINT_FILES))
        self.samples = samples = readable(self.samples, self.monitor)
        dpac = self.dpac
        if self.resume == "never":
            folder.start_over()
        dpac.check(samples.pictures)
        size = None if samples.heading == "path" else samples.pictures.size
        config = self.request.config(samples, dpac.n_clusters)
        begin(folder, config | {"image_size": size, "recipe": asdict(self.recipe)})
        began = time.perf_counter()
        dpac.fit(samples.pictures)
        seconds = time.perf_counter() - began
        folder.keep("metrics.jsonl")
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
            },
        )


def recipe_of(source: Any) -> str:
    """Return the name of a set's own recipe, or of the most similar set's."""
    if not is_named(source) or source not in named.IMAGE_NAMES:
        return "own"
    return "mnist" if source == "mnist-test" else source
