"""PAC on rows, a matrix or the features of a frozen network, and DPAC on images."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from probagg.aggregation import LINEAR_METRICS
from probagg.app.run import samples as opened
from probagg.app.run.folder import DUPLICATES, SUGGESTIONS, unfinished
from probagg.app.run.result import (
    Clustering,
    Predicted,
    begin,
    most_probable,
)
from probagg.app.run.tables import FILE, Preparation
from probagg.data.cells import text_table
from probagg.data.opening import NAMED, is_named
from probagg.errors import InputError
from probagg.progress import Monitor

if TYPE_CHECKING:
    from probagg import PAC, GraphPAC
    from probagg.app.run.folder import RunFolder
    from probagg.app.run.options import Request
    from probagg.app.run.samples import Samples

# Defaults for features of a network: they differ in direction, and the critical m of few or
# similar photos may lie below 1.03.
FEATURE_DEFAULTS: dict[str, Any] = {"metric": "cosine", "m": "auto", "n_init": 3}
# Rows of a matrix are smoothed up to so many values, and to so many columns: the model keeps up to
# 10,000 of the rows.
MOST_VALUES, MOST_COLUMNS = 100_000_000, 10_000
# Products of rows, columns, clusters and starts from which sweeps are logged: about ten seconds.
LONG = 10**9


def facts_of(pac: PAC) -> dict[str, Any]:
    """Return what result.json holds of a fitted PAC."""
    learned = {
        name: getattr(pac, f"{name}_") for name in ("objective", "n_iter", "m", "critical_m")
    }
    return learned | {"balance": pac.balance}


class ByPac:
    """Clustering by PAC; `describe` says what `run` will do."""

    is_first_process = True

    def __init__(self, request: Request) -> None:
        options, self.request, self.k = request.options, request, request.clusters()
        samples = request.open(request.monitor)
        # The parameters of the estimator that differ from its own defaults.
        params = options.given("m", "metric", "balance", "n_init")
        for_tables = options.given("id", "scale", "drop")
        is_images = samples.kind == "images"
        if samples.table is None and for_tables:
            raise InputError(
                f"{', '.join(for_tables)}: for a table (.csv, .parquet, a DataFrame), but "
                f"{request.title} is {'images' if is_images else 'a matrix'}. Leave out."
            )
        if samples.table is None:
            self.samples = samples.label(options.labels)
        else:
            if params.get("metric") == "cosine":
                # Cosine compares directions from the origin, which scaling would move.
                for_tables = {"scale": "none"} | for_tables
            classes = samples.column_named(options.labels)
            preparation, prepared = Preparation.fit(samples.table, **for_tables, classes=classes)
            for line in prepared.lines:
                request.monitor.say(line)
            self.samples = samples.prepared(preparation, prepared, options.labels)
        if is_images:
            params = FEATURE_DEFAULTS | params
        elif options.given("backbone", "device"):
            raise InputError(
                f"backbone and device are for networks, but {request.title} is a matrix. Leave "
                "them out."
            )
        self._check_k()
        if not isinstance(self.k, int):
            # The m that K is chosen with.
            params.setdefault("m", "auto")
        self.params = params
        # Neighbours are found by distance or angle, of a matrix where it is dense.
        X = self.samples.X
        is_near = isinstance(X, np.ndarray) and X.size <= MOST_VALUES
        is_near = is_images or (is_near and X.shape[1] <= MOST_COLUMNS)
        has_angles = params.get("metric", "sqeuclidean") in LINEAR_METRICS
        self.smooth = options.smooth is not False and has_angles and is_near
        # Wrong parameters are refused before hours of features, and before torch is loaded.
        self._estimator(2)._validate_params()
        self.backbone: Any = None
        self.network = ""
        if is_images:
            from probagg.app.embed.opening import DEFAULT, is_available, open_backbone
            from probagg.pac.rows import check_pairwise_metric

            if params["metric"] not in LINEAR_METRICS:
                check_pairwise_metric(np.eye(3, 2), params["metric"])
            self.network = options.backbone or DEFAULT
            if request.download or is_available(self.network):
                self.backbone = open_backbone(self.network, options.device or "auto")

    def _estimator(self, K: int, smooth: bool = False) -> PAC | GraphPAC:
        import probagg  # scikit-learn is slow to import

        kind = probagg.GraphPAC if smooth else probagg.PAC
        return kind(K, **self.params, random_state=self.request.seed)

    def _check_k(self) -> None:
        """Refuse, before hours of features, more clusters than samples or than can be judged."""
        n, given = len(self.samples), f"{len(self.samples):,} {self.samples.noun}"
        if isinstance(self.k, int):
            self._check_size(self.k, n, given)
            return
        from probagg.pac.n_clusters import LEAST_PER_CLUSTER  # scikit-learn is slow to import

        if (most := n // LEAST_PER_CLUSTER) < 2:
            raise InputError(
                f"{self.request.title} has {given}, but the number of clusters can be chosen from "
                f"{2 * LEAST_PER_CLUSTER} on. Give the number itself, as 2 (-k 2)."
            )
        if isinstance(self.k, tuple) and self.k[1] > most:
            raise InputError(
                f"The range of K ends at {self.k[1]:,}, but {given} are enough to judge {most:,} "
                "clusters at most. Lower it."
            )

    def _check_size(self, K: int, n: int, given: str) -> None:
        """Refuse more clusters than the n samples."""
        if n < K:
            raise InputError(
                f"{self.request.title} has {given}, which cannot form {K:,} clusters. Ask for "
                "fewer."
            )

    def describe(self) -> str:
        """Return what will be done, in words."""
        N, what = len(self.samples), f"{len(self.samples):,} {self.samples.noun}"
        if self.samples.images is None:
            what += f" of {self.samples.X.shape[1]:,} columns"
        else:
            first = " (its weights are downloaded first)" * (self.backbone is None)
            what += f", features of {self.network}{first}"
        how, K = f"{self.k} cluster{'s' * (self.k != 1)}", self.k
        if not isinstance(K, int):
            how, K = "a number of clusters to be chosen", 20
        if self.smooths(N, K):
            how += ", smoothed"
        return f"{what}, PAC into {how}"

    def smooths(self, N: int, K: int) -> bool:
        """Return whether the clusters of N rows or images are smoothed."""
        from probagg.neighbours.smoothing import PER_CLUSTER  # SciPy is slow to import

        return self.smooth and N >= PER_CLUSTER * K

    def embedded(self) -> tuple[Samples, float | None]:
        """Return the samples with their features, and for images the seconds these took."""
        if self.backbone is None:
            return self.samples, None
        began = time.perf_counter()
        samples = opened.embed_images(self.samples, self.backbone, self.request.monitor)
        return samples, round(time.perf_counter() - began, 1)

    def run(self, folder: RunFolder) -> Clustering:
        """Extract features where needed, choose K where asked for, and cluster."""
        samples, embedding = self.embedded()
        began, X, monitor = time.perf_counter(), samples.X, self.request.monitor
        facts: dict[str, Any] = {"method": "pac"}
        files: dict[str, str] = {}
        duplicates: list[list[int]] = []
        if self.backbone is not None:
            from probagg.app.embed.duplicates import find_duplicates

            facts |= {"backbone": self.backbone.name, "embedding_seconds": embedding}
            progress = monitor.count("near-duplicates", "images")
            blank = set(samples.blank)
            duplicates = find_duplicates(X, samples.pictures, samples.names, progress, blank)
        K, chosen = self.k, None
        if not isinstance(K, int):
            K, chosen, files["k_selection.csv"] = self._choose(samples, K)
        if self.backbone is not None:
            self._check_size(K, len(X), f"{len(X):,} images that can be read")
        model, pac = self._fitted(K, X)
        # PAC does not keep them where X is large.
        P = getattr(model, "probabilities_", None)
        P = Predicted(model, X) if P is None else P
        facts["smooth"] = pac is not model
        if pac is not model:
            facts["clusters"] = model.reason_
        if samples.preparation is not None:
            files[FILE] = samples.preparation.to_json()
        seconds = time.perf_counter() - began + (embedding or 0.0)
        config = self.request.config(samples, K)
        if self.backbone is not None:
            from probagg.app.embed.backbone import suggest_names

            facts["n_duplicates"] = sum(len(group) - 1 for group in duplicates)
            if duplicates:
                named = ([samples.names[row] for row in group] for group in duplicates)
                table = ((i, name, group[0]) for i, group in enumerate(named) for name in group)
                heads = f"group {samples.heading} representative"
                files[DUPLICATES] = text_table(heads, table)
            if names := suggest_names(self.backbone, X, most_probable(P), K):
                files[SUGGESTIONS] = text_table("cluster suggestion difference", names)
            config["embed"] = self.backbone.spec()
        config |= {"smooth": pac is not model, "columns": samples.columns, "pac": pac.get_params()}
        begin(folder, config)
        facts |= (chosen or {}) | facts_of(pac)
        return Clustering(samples, P, X, model.metric, model, seconds, facts, files)

    def _fitted(self, K: int, X: Any) -> tuple[Any, PAC]:
        """Return the fitted estimator, and the PAC in it, which is itself where not smoothed."""
        monitor, (N, D) = self.request.monitor, X.shape
        model: Any = self._estimator(K, smooth := self.smooths(N, K))
        if monitor.shows_progress and N * D * K * model.n_init > LONG:
            model.set_params(verbose=2)
        if smooth:
            model.fit(X, progress=monitor.count("smoothing", self.samples.noun))
            monitor.say(model.reason_)
        else:
            model.fit(X)
            if self.smooth:
                from probagg.neighbours.smoothing import PER_CLUSTER

                noun = self.samples.noun
                monitor.say(f"not smoothed: fewer than {PER_CLUSTER} {noun} per cluster")
        pac = model.pac_ if smooth else model
        for estimator in {model, pac}:
            estimator.set_params(verbose=0)
        return model, pac

    def _choose(self, samples: Samples, K: Any) -> tuple[int, dict[str, Any], str]:
        """Return the number of clusters chosen from the data, the reason, and the table."""
        from probagg import select_n_clusters

        began = time.perf_counter()
        selection = select_n_clusters(
            samples.X,
            K,
            metric=self.params.get("metric", "sqeuclidean"),
            feature_names=samples.columns,
            random_state=self.request.seed,
        )
        self.request.monitor.say(selection.reason)
        facts = {
            "k_reason": selection.reason,
            "k_interval": list(selection.interval),
            "k_seconds": round(time.perf_counter() - began, 2),
        }
        return selection.n_clusters, facts, selection.to_csv()


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
            recipe = Recipe.of(recipe or (request.source if is_named(request.source) else "own"))
        self.recipe = recipe.override(options.settings or [])
        if (samples := request.open(self.monitor)).kind != "images":
            raise InputError(
                f"{request.title!r} is not a set of images. DPAC takes a folder, an .npz file, an "
                f"array of images, {', '.join(NAMED)}."
            )
        from probagg import DPAC  # torch is slow to import

        self.samples = samples.for_recipe(request.source, self.recipe).label(options.labels)
        self.dpac = DPAC(
            k,
            recipe=self.recipe,
            out_dir=unfinished(request.out),
            random_state=request.seed,
            progress=self.monitor.train,
            **options.given("device", "precision", "max_minutes"),
        )

    def describe(self) -> str:
        """Return what will be done, in words."""
        how = f"DPAC ({self.recipe.name}) trains a network"
        return f"{len(self.samples):,} images, {how} for {self.dpac.n_clusters} clusters"

    def join(self) -> None:
        """Train as one of the other processes."""
        self.samples = opened.readable(self.samples, self.monitor)
        self.dpac.fit(self.samples.pictures)

    def run(self, folder: RunFolder) -> Clustering:
        """Train, or resume training."""
        self.samples = samples = opened.readable(self.samples, self.monitor)
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
