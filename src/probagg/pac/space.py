"""The space in which PAC clusters, chosen without labels.

Rows are clustered as they are (raw), averaged over neighbours, and in coordinates on the graph
of neighbours. Each time, the labels are compared with the graph of the raw rows: its neighbours
have the same label more often where boundaries run between groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
import scipy.sparse as sp

from probagg.aggregation import LINEAR_METRICS, Array
from probagg.arrays import to_numpy
from probagg.estimators import draw_seed
from probagg.neighbours.graph import NeighbourAgreement, modularity, plain_rows
from probagg.neighbours.spaces import GraphCoordinates, SmoothedRows, neighbour_graph
from probagg.pac.balance import choose_balance
from probagg.pac.pac import PAC
from probagg.pac.solver import Parameters, Solution, solve
from probagg.progress import log_progress

NEIGHBOURS = 10
# How often rows are averaged.
ROUNDS = 10
# Coordinates per cluster, and steps of the random walk: few coordinates lose less by many steps.
COORDINATES = ((1, 10), (2, 3))
# Runs of PAC in each space, the readings of which are averaged.
STARTS = 3
# Raw rows are left for such a gain of modularity, or where so small a part of the neighbours with
# another label remains. Of two other spaces the simpler is taken, but for a slight gain.
CLEAR_GAIN, SMALL_PART = 0.04, 0.25
SLIGHT_GAIN = 0.0035
# The least rows per cluster, and the most rows, or rows per cluster, that make the graph.
LEAST_PER_CLUSTER = 20
MOST_ROWS, MOST_PER_CLUSTER = 20_000, 50

Transformer = SmoothedRows | GraphCoordinates


@dataclass(frozen=True, eq=False)
class Space:
    """A space of rows, and why it was chosen; `transformer` is None for raw rows."""

    transformer: Transformer | None
    reason: str

    @property
    def name(self) -> str:
        """Which it is: raw, averaged or coordinates."""
        if self.transformer is None:
            return "raw"
        return "averaged" if isinstance(self.transformer, SmoothedRows) else "coordinates"

    def transform(self, X: Array) -> Array:
        """Return rows in the space."""
        return X if self.transformer is None else self.transformer.transform(plain_rows(X))

    def parameters(self, parameters: Parameters) -> Parameters:
        """Return those of PAC in the space, from those for raw rows.

        Other spaces have another critical m. Coordinates are of length 1, so all metrics agree.
        """
        if self.transformer is None:
            return parameters
        is_averaged = isinstance(self.transformer, SmoothedRows)
        metric = parameters.metric if is_averaged else "sqeuclidean"
        return replace(parameters, m="auto", metric=metric)


@dataclass(frozen=True)
class PACInSpace:
    """A fitted PAC, and the transformer that rows go through first."""

    transformer: Transformer
    pac: PAC

    @property
    def n_clusters(self) -> int:
        """K."""
        return self.pac.n_clusters

    @property
    def n_features_in_(self) -> int:
        """D, of raw rows."""
        return self.transformer.n_features_in_

    def predict_proba(self, X: Array) -> Array:
        """Return the probability of each raw row in each cluster."""
        return self.pac.predict_proba(self.transformer.transform(X))


@dataclass(frozen=True)
class Reading:
    """How well labels fit the graph of neighbours."""

    modularity: float
    kappa: float

    @classmethod
    def of(cls, runs: list[Solution], near: np.ndarray, K: int) -> Reading:
        """Return the means over runs: starts that end differently are less to be trusted."""
        labels = [to_numpy(run.P).argmax(1) for run in runs]
        kappas = [NeighbourAgreement.of(each, near, K).kappa for each in labels]
        return cls(
            float(np.mean([modularity(near, each) for each in labels])), float(np.mean(kappas))
        )


def choose_space(X: Array, parameters: Parameters, space: str = "auto") -> Space:
    """Return the space of rows X in memory in which PAC's clusters fit the neighbours best.

    Where `space` is "averaged" or "coordinates", only the number of coordinates is chosen.
    The graph is that of at most 20,000 rows, or 50 per cluster.
    """
    N, K, metric = X.shape[0], parameters.n_clusters, parameters.metric
    if space == "raw":
        return Space(None, "rows as they are")
    if K == 1 or metric not in LINEAR_METRICS:
        return Space(None, "rows as they are")
    if K * LEAST_PER_CLUSTER > N:
        return Space(None, f"rows as they are: fewer than {LEAST_PER_CLUSTER} per cluster")
    rows, parameters = plain_rows(X), replace(parameters, checkpoint=None)
    if not isinstance(parameters.random_state, Integral):
        parameters = replace(parameters, random_state=draw_seed(parameters.random_state))
    size = max(MOST_ROWS, MOST_PER_CLUSTER * K)
    if size < N:
        draw = np.random.default_rng(parameters.random_state).choice
        rows = rows[np.sort(draw(N, size, replace=False))]
    near = neighbour_graph(rows, NEIGHBOURS, str(metric))
    others, raw, by = near[:, 1:], Reading(0.0, 0.0), "modularity"
    if space == "auto":
        solution = None
        if parameters.balance == "auto":
            choice = choose_balance(rows, parameters)
            parameters, solution = choice.parameters, choice.solution
        raw = Reading.of([solution or solve(rows, parameters)], others, K)
        # Modularity prefers equal sizes.
        by = "modularity" if float(parameters.balance) >= 1.0 else "kappa"
    elif parameters.balance == "auto":
        parameters = replace(parameters, balance=1.0)
    best: tuple[Reading, Space] | None = None
    for candidate, Z in _candidates(rows, near, parameters, space):
        at = replace(candidate.parameters(parameters), n_init=1)
        seeds = (at.random_state + number for number in range(STARTS))
        found = Reading.of([solve(Z, replace(at, random_state=seed)) for seed in seeds], others, K)
        message = "%s: modularity %.4f, kappa %.4f"
        values = candidate.reason, found.modularity, found.kappa
        log_progress(parameters.verbose >= 1, message, *values)
        if best is None or getattr(found, by) >= getattr(best[0], by) + SLIGHT_GAIN:
            best = found, candidate
    if best is None:
        return Space(None, "rows as they are: sparse rows are not averaged")
    found, chosen = best
    if space != "auto":
        return chosen
    before, after = getattr(raw, by), getattr(found, by)
    compared = f"{by} {after:.3f} instead of {before:.3f}"
    if after - before >= CLEAR_GAIN or 1.0 - found.kappa < SMALL_PART * (1.0 - raw.kappa):
        return Space(chosen.transformer, f"{chosen.reason}: {compared}")
    return Space(None, f"rows as they are: {chosen.reason} have {compared}")


def _candidates(
    rows: Array, near: np.ndarray, parameters: Parameters, space: str
) -> Iterator[tuple[Space, Array]]:
    """Return spaces, simple ones first, and the rows in each."""
    metric, K = str(parameters.metric), parameters.n_clusters
    if space in ("auto", "averaged") and not sp.issparse(rows):
        averaged = SmoothedRows(NEIGHBOURS, ROUNDS, metric=metric)
        Z = averaged.fit_graph(rows, near)
        yield Space(averaged, f"rows averaged {ROUNDS} times over neighbours"), Z
    if space in ("auto", "coordinates"):
        most, steps = COORDINATES[-1]
        all_of_them = GraphCoordinates(most * K, NEIGHBOURS, steps=steps, metric=metric)
        all_of_them.fit_graph(rows, near)
        for per_cluster, steps in COORDINATES:
            some = all_of_them.first(per_cluster * K, steps)
            reason = f"{per_cluster * K} coordinates on the graph of neighbours"
            yield Space(some, reason), some.of(near)
