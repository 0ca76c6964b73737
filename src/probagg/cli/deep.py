"""Images clustered by DPAC, as a run that can be left and taken up."""

from __future__ import annotations

import io
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from probagg.cli.tables import assignments
from probagg.cli.terminal import DownloadLine, ProgressLine, show_scores, show_sizes
from probagg.data import benchmarks
from probagg.runs import RunFolder, environment

if TYPE_CHECKING:
    from probagg.data.images import ImageSet
    from probagg.dpac.estimator import DPAC
    from probagg.dpac.recipe import Recipe

BESIDE = 10**8  # numbers of which PAC beside DPAC still takes seconds


def run(
    *,
    source: str,
    k: int | None,
    out: Path,
    seed: int,
    overwrite: bool,
    quiet: bool,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Train on images and fill the run folder. Of several processes only the first writes."""
    import probagg

    recipe, settings = options.pop("recipe", None), options.pop("set", [])
    if (resume := options.pop("resume", "auto")) not in ("auto", "never"):
        raise ValueError(f"--resume is {resume!r}; possible are auto and never.")
    chosen = probagg.Recipe.of(recipe or _recipe_of(source)).override(settings)
    first = os.environ.get("RANK", "0") == "0"
    data = _open(source, chosen, DownloadLine(first and not quiet))
    dpac = probagg.DPAC(
        _n_clusters(source, k),
        recipe=chosen,
        out_dir=out,
        random_state=seed,
        progress=ProgressLine(first and not quiet),
        **options,
    )
    if not first:
        dpac.fit(data)
        return {}
    with RunFolder(out, overwrite=overwrite) as folder:
        if resume == "never":
            for name in ("checkpoints", "tensorboard"):
                shutil.rmtree(out / name, ignore_errors=True)
        dpac.check(data)  # before the first file replaces an older run
        folder.write("config.toml", _config(source, dpac, chosen))
        folder.write_json("env.json", environment())
        began = time.perf_counter()
        dpac.fit(data)
        seconds = time.perf_counter() - began
        _write(folder, dpac, data)
        result = _summary(dpac, data, seconds, out)
        folder.write_json("result.json", result)
    if not quiet:
        _show(source, data, result)
    return result


def _open(source: str, recipe: Recipe, progress: DownloadLine) -> ImageSet:
    """A named set, or a user's folder or file; photos are brought to the recipe's size."""
    from probagg.dpac.estimator import open_for

    if source not in benchmarks.IMAGE_NAMES:
        return open_for(source, recipe)
    size = recipe.decode_size if source in ("imagenet10", "imagenet-dogs") else None
    return benchmarks.load_images(source, size=size, progress=progress)


def _n_clusters(source: str, k: int | None) -> int:
    if k is not None:
        return k
    if source not in benchmarks.IMAGE_NAMES:
        raise ValueError(f"-k is missing: say how many clusters {source} should have, as -k 10.")
    return benchmarks.n_classes(source)


def _recipe_of(source: str) -> str:
    """A set's own recipe, or that of the set it is like."""
    if source not in benchmarks.IMAGE_NAMES:
        return "own"
    return {"mnist-test": "mnist", "imagenette": "imagenet10", "coil100": "own"}.get(source, source)


def _config(source: str, dpac: DPAC, recipe: Recipe) -> str:
    import tomli_w

    config = {"source": source, "method": "dpac", "n_clusters": dpac.n_clusters}
    return tomli_w.dumps({**config, "seed": dpac.random_state, "recipe": asdict(recipe)})


def _summary(dpac: DPAC, data: ImageSet, seconds: float, out: Path) -> dict[str, Any]:
    from probagg.metrics import evaluate

    result: dict[str, Any] = {
        "run": str(out),
        "method": "dpac",
        "recipe": dpac.recipe_.name,
        "n_clusters": dpac.n_clusters,
        "sizes": np.bincount(dpac.labels_, minlength=dpac.n_clusters).tolist(),
        "state": dpac.diagnosis_.state,
        "sharpness": dpac.diagnosis_.sharpness,
        "seconds": round(seconds, 1),
    }
    if data.y is not None:
        result |= evaluate(data.y, dpac.labels_)
        result |= _beside(dpac, data)
    return result


def _beside(dpac: DPAC, data: ImageSet) -> dict[str, Any]:
    """PAC on the pixels and on the network's features, scored like DPAC."""
    from probagg.metrics import evaluate
    from probagg.pac.estimator import PAC

    found = {}
    inputs = {"features": (dpac.features_, "cosine")}
    pixels = int(np.prod((*(data.size or (0,)), data.channels)))
    if len(data) * pixels <= BESIDE:
        rows = data.read(np.arange(len(data))).reshape(len(data), -1).astype(np.float32)
        inputs["pixels"] = (rows, "sqeuclidean")
    for name, (X, metric) in inputs.items():
        pac = PAC(dpac.n_clusters, metric=metric, n_init=3, random_state=dpac.random_state).fit(X)
        found[f"pac_on_{name}"] = evaluate(data.y, pac.labels_)
    return found


def _write(folder: RunFolder, dpac: DPAC, data: ImageSet) -> None:
    features = io.BytesIO()
    np.save(features, dpac.features_.astype(np.float32))
    folder.write("embeddings.npy", features.getvalue())
    folder.write("assignments.csv", assignments(dpac.probabilities_, data.paths))
    dpac.save(folder.path / "model.safetensors")
    shutil.rmtree(folder.path / "checkpoints", ignore_errors=True)  # the model is all of them


def _show(source: str, data: ImageSet, result: dict[str, Any]) -> None:
    typer.echo(
        f"{source}: {len(data)} images, {result['n_clusters']} clusters (DPAC, "
        f"{result['recipe']}), {result['seconds']:.0f} s; {result['state']}, sharpness "
        f"{result['sharpness']:.2f}"
    )
    show_sizes(result["sizes"])
    if "acc" in result:
        typer.echo("against the known labels:")
        show_scores("  DPAC           ", result)
        for name in ("features", "pixels"):
            if f"pac_on_{name}" in result:
                show_scores(f"  PAC on {name:<8}", result[f"pac_on_{name}"])
    typer.echo(f"written to {result['run']}")
