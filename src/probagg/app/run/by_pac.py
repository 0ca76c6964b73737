"""PAC or an OPA head on rows: a matrix, or the features of a frozen network."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from probagg import smoothing
from probagg.app.run import samples as opened
from probagg.app.run.estimates import slowness
from probagg.app.run.folder import DUPLICATES
from probagg.app.run.preparation import FILE, Preparation
from probagg.app.run.result import (
    Clustering,
    begin,
    facts_of,
    fitted_probabilities,
    probabilities_of_all,
    records_of,
    text_table,
)
from probagg.data import benchmarks
from probagg.data.opening import is_image_source
from probagg.errors import InputError
from probagg.smoothing import PER_CLUSTER, Smoothing

if TYPE_CHECKING:
    from probagg.app.run.duplicates import Duplicates
    from probagg.app.run.folder import RunFolder
    from probagg.app.run.options import Request
    from probagg.app.run.samples import Samples

# Defaults for features of a network: they differ in direction, and the critical m of few or
# similar photos may lie below 1.03.
FEATURE_DEFAULTS: dict[str, dict[str, Any]] = {
    "pac": {"metric": "cosine", "m": "auto", "n_init": 3},
    "opa": {"metric": "cosine"},
}
TABLES = ("id", "scale", "drop")  # options of tables
IMAGES = ("smooth", "deduplicate")  # and of images
ENOUGH_TO_CHOOSE = 50_000  # rows of a file from which K is chosen
LONG = 10.0  # seconds of fitting from which progress is shown


class Flat:
    """Clustering by PAC or OPA; `plan` describes what `run` will do."""

    is_first_process = True

    def __init__(self, request: Request, method: str, options: dict[str, Any]) -> None:
        self.request, self.method, self.k = request, method, request.clusters()
        name, weights = options.pop("backbone", None), options.pop("weights", None)
        device = options.get("device", "auto")
        self.backbone: Any = None
        source, monitor = request.source, request.monitor
        self.for_tables = {key: options.pop(key) for key in TABLES if key in options}
        for_images = {key: options.pop(key) for key in IMAGES if key in options}
        self.deduplicate = for_images.get("deduplicate", False)
        is_images = name or (is_image_source(source) and not _is_matrix_name(source))
        if is_images:
            self._refuse("images")
            self.samples = opened.open_pictures(request.data, monitor).label(request.labels)
            options = FEATURE_DEFAULTS[method] | options
        else:
            self.samples = self._open_rows(options)
            if for_images:
                raise InputError(
                    f"{' and '.join(for_images)} is for images, but {request.title} is a matrix. "
                    "Leave it out."
                )
            if weights or (method == "pac" and "device" in options):
                raise InputError(
                    f"weights and device are for networks, but {request.title} is a matrix. Leave "
                    "them out."
                )
        self.smooth = bool(is_images) and method == "pac" and for_images.get("smooth", True)
        self._check_k()
        options.setdefault("balance", "auto")
        if method == "pac":
            options.pop("device", None)
            if not isinstance(self.k, int):  # the m that K is chosen with
                options.setdefault("m", "auto")
        self.options = options
        self._estimator(2)._validate_params()  # before hours of features
        if is_images:  # last, because it loads torch and weights
            _check_metric(options["metric"])
            self.backbone = _open_backbone(name, weights, device)

    def _open_rows(self, options: dict[str, Any]) -> Samples:
        """Open a matrix, or open and prepare a table."""
        request = self.request
        samples = opened.open_rows(request.source, in_parts=self.method == "pac")
        if samples.table is None:
            self._refuse("a matrix")
            return samples.label(request.labels)
        given = self.for_tables
        if "scale" not in given and options.get("metric") == "cosine":
            given = given | {"scale": "none"}  # directions are from the origin
        classes = samples.column_named(request.labels)
        preparation, prepared = Preparation.fit(samples.table, **given, classes=classes)
        for line in prepared.lines:
            request.monitor.say(line)
        return samples.prepared(preparation, prepared, request.labels)

    def _refuse(self, what: str) -> None:
        """Refuse options of tables for another source."""
        if self.for_tables:
            raise InputError(
                f"{', '.join(self.for_tables)}: for a table (.csv, a .parquet of less than "
                f"{opened.READ_IN_PARTS / 1e6:.0f} MB, a DataFrame), but {self.request.title} is "
                f"{what}. Leave out."
            )

    def _estimator(self, K: int) -> Any:
        import probagg

        # By name: PAC alone needs no torch.
        estimator: Any = probagg.PAC if self.method == "pac" else probagg.OPAHead
        return estimator(K, **self.options, random_state=self.request.seed)

    def _check_k(self) -> None:
        """Refuse, before hours of features, more clusters than samples or than can be judged."""
        n, given = len(self.samples), f"{len(self.samples):,} {self.samples.noun}"
        if isinstance(self.k, int):
            if self.k > n:
                raise InputError(
                    f"{self.request.title} has {given}, which cannot form {self.k:,} clusters. Ask "
                    "for fewer."
                )
            return
        from probagg.pac.n_clusters import LEAST_PER_CLUSTER  # which loads scikit-learn

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

    def plan(self) -> tuple[str, float]:
        """Return what will be done, in words, and roughly how many seconds it takes."""
        N, seconds, what = len(self.samples), 0.0, f"{len(self.samples):,} {self.samples.noun}"
        if self.backbone is None:
            D = self.samples.features.shape[1]
            what += f" of {D:,} columns"
        else:
            from probagg.app.embed import estimate

            D, seconds = self.backbone.n_features, estimate(self.samples.pictures, self.backbone)
            seconds += 5e-11 * N * N * D  # of comparing all pairs
            what += f", features of {self.backbone.name}"
        how, K, choosing = f"{self.k} cluster{'s' * (self.k != 1)}", self.k, 0.0
        if not isinstance(K, int):
            from probagg.pac.n_clusters import estimate_seconds

            how, K = "a number of clusters to be chosen", 20
            choosing = slowness() * estimate_seconds(self.k, min(N, ENOUGH_TO_CHOOSE), D)
        seconds += choosing + self._seconds(N, D, K)
        if self.smooths(N, K):
            how += ", smoothed"
            seconds += slowness() * smoothing.estimate_seconds(N, D)
        return f"{what}, {self.method.upper()} into {how}", seconds

    def smooths(self, N: int, K: int) -> bool:
        """Return whether the clusters of N images are smoothed."""
        return self.smooth and N >= PER_CLUSTER * K

    def advice(self, seconds: float) -> str | None:
        """Return None: PAC and OPA run on any machine."""
        return None

    def _seconds(self, N: int, D: int, K: int) -> float:
        """Estimate the time of clustering alone: good to a factor of 3."""
        if self.method == "pac":
            runs = N + 4 * min(N, 5000) * (self.options["balance"] == "auto")
            return slowness() * (0.2 + 1e-8 * runs * D * K * self.options.get("n_init", 1))
        return slowness() * (1.0 + 2e-7 * N * D * K)

    def run(self, folder: RunFolder) -> Clustering:
        """Extract features where needed, choose K where asked for, and cluster."""
        samples, embedding = self.embedded()
        self.request.check_skipped(samples.skipped)
        facts: dict[str, Any] = {"method": self.method}
        if embedding is not None:
            facts |= {"backbone": self.backbone.name, "embedding_seconds": embedding}
        began = time.perf_counter()
        duplicates = self._duplicates(samples)
        X = samples.features
        if duplicates is not None and self.deduplicate:
            X = X[duplicates.kept]
        K, chosen, files = self._choose(replace(samples, X=X))
        self._check_kept(K, X)
        model = self._estimator(K)
        if self.request.monitor.shows_progress and self._seconds(X.shape[0], X.shape[1], K) > LONG:
            model.set_params(verbose=2)  # sweeps and epochs on standard error
        model.fit(X)
        model.set_params(verbose=0)
        if samples.preparation is not None:
            files = files | {FILE: samples.preparation.to_json()}
        P, fitted = self._smoothed(fitted_probabilities(model, X), X)
        if self.backbone is not None and self.method == "pac":
            facts["smooth"] = fitted is not None
        seconds = time.perf_counter() - began
        if duplicates is not None:
            facts["n_duplicates"] = len(samples) - len(duplicates.kept)
            if table := duplicates.table(samples.names):
                heads = f"group {samples.heading} representative"
                files = files | {DUPLICATES: text_table(heads, table)}
            if self.deduplicate:
                P = probabilities_of_all(P, model, samples.features, duplicates)
        begin(folder, self._config(samples, model, facts))
        return Clustering(
            samples=samples,
            P=P,
            X=samples.features,
            metric=model.metric,
            model=model,
            seconds=seconds + (embedding or 0.0),
            facts=facts | chosen | facts_of(model),
            records=records_of(model),
            files=files,
            smoothing=fitted,
        )

    def embedded(self) -> tuple[Samples, float | None]:
        """Return the samples with their features, and for images the seconds these took."""
        if self.backbone is None:
            return self.samples, None
        began = time.perf_counter()
        samples = opened.embed_images(self.samples, self.backbone, self.request.monitor)
        return samples, round(time.perf_counter() - began, 1)

    def _duplicates(self, samples: Samples) -> Duplicates | None:
        """Return the near-duplicates among photos; None for a matrix."""
        if self.backbone is None:
            return None
        from probagg.app.run.duplicates import find_duplicates

        progress = self.request.monitor.count("near-duplicates", "images")
        return find_duplicates(samples.features, samples.pictures, samples.names, progress)

    def _smoothed(self, P: Any, X: Any) -> tuple[Any, Smoothing | None]:
        """Return P after smoothing, and what smooths new images; P itself where it is not done."""
        N, K = P.shape
        if self.smooths(N, K):
            progress = self.request.monitor.count("smoothing", "images")
            fitted, P = Smoothing.fit(X, P, self.request.seed, progress)
            return P, fitted
        if self.smooth:
            self.request.monitor.say(f"not smoothed: fewer than {PER_CLUSTER} images per cluster")
        return P, None

    def _check_kept(self, K: int, X: Any) -> None:
        """Refuse more clusters than images that can be read, or than differ where that counts."""
        if self.backbone is None or len(X) >= K:
            return
        kept = "different images" if self.deduplicate else "images that can be read"
        also = ", or leave out deduplicate" if self.deduplicate else ""
        raise InputError(
            f"{self.request.title} has {len(X):,} {kept}, which cannot form {K:,} clusters. Ask "
            f"for fewer{also}."
        )

    def _choose(self, samples: Samples) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Return K and, where it was chosen from the data, the reason and the table."""
        if isinstance(self.k, int):
            return self.k, {}, {}
        from probagg import select_n_clusters

        shared = {
            key: self.options[key] for key in ("m", "metric", "balance") if key in self.options
        }
        if shared.get("balance") == "auto":  # which is chosen for one K
            del shared["balance"]
        began = time.perf_counter()
        selection = select_n_clusters(
            samples.sample(ENOUGH_TO_CHOOSE, self.request.seed),
            self.k,
            **shared,
            random_state=self.request.seed,
            progress=self.request.monitor.count("choosing K", "%"),
        )
        self.request.monitor.say(selection.reason)
        files = {"k_selection.csv": selection.to_csv(), "k_selection.svg": selection.plot_svg()}
        facts = {
            "k_reason": selection.reason,
            "k_interval": list(selection.interval),
            "k_seconds": round(time.perf_counter() - began, 1),
        }
        return selection.n_clusters, facts, files

    def _config(self, samples: Samples, model: Any, facts: dict[str, Any]) -> dict[str, Any]:
        config: dict[str, Any] = {
            "source": samples.source,
            "kind": "matrix" if samples.images is None else "images",
            "method": self.method,
            "n_clusters": model.n_clusters,
            "seed": self.request.seed,
        }
        if self.backbone is not None:
            config["embed"] = self.backbone.spec()
        if self.deduplicate:
            config["deduplicate"] = True
        if "smooth" in facts:
            config["smooth"] = facts["smooth"]
        if samples.columns is not None:
            config["columns"] = samples.columns
        return config | {self.method: model.get_params()}


def _is_matrix_name(source: Any) -> bool:
    return isinstance(source, str) and source in benchmarks.NAMES


def _check_metric(metric: str) -> None:
    """Refuse, before hours of features, a metric that is not known, by three rows."""
    import numpy as np

    from probagg.aggregation import LINEAR_METRICS
    from probagg.pac.clusters import check_metric  # scikit-learn is slow to import

    if metric not in LINEAR_METRICS:
        check_metric(np.eye(3, 2), metric)


def _open_backbone(name: str | None, weights: str | None, device: str) -> Any:
    from probagg.app.embed import DEFAULT, open_backbone

    return open_backbone(name or DEFAULT, weights, device=device)


def smoothed(X: Any, P: Any, seed: int) -> Any:
    """Return P of the features X of images, smoothed as in a run."""
    return Smoothing.fit(X, P, seed)[1]
