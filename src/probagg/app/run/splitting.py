"""A cluster of a reviewed run, divided by PAC on the features of its members."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from probagg.app.assignments import Assignments
from probagg.app.review import MAX_CREATED, MAX_PARTS, Review, ReviewError, Split
from probagg.app.run.methods import FEATURE_DEFAULTS


def split_cluster(
    X: np.ndarray, assigned: Assignments, n_clusters: int, review: Review, cluster: Any, n: Any
) -> Split:
    """Divide a cluster of a reviewed run into `n` parts; the review itself is not changed.

    X (N, D) are the features of the samples in `assigned`, the table before the review. Discarded
    samples do not count as members.
    """
    if type(n) is not int or not 2 <= n <= MAX_PARTS:
        raise ReviewError(f"A cluster is split into 2 to {MAX_PARTS} parts, not {n}.")
    if type(cluster) is not int or cluster not in review.clusters(n_clusters):
        raise ReviewError(f"Cluster {cluster} is not one of the clusters. Reload the page.")
    first = review.n_numbers(n_clusters)
    if first + n > n_clusters + MAX_CREATED:
        raise ReviewError(f"A review can add {MAX_CREATED:,} clusters. Undo splits or new ones.")
    members = np.flatnonzero(review.apply(assigned).cluster == cluster)
    if len(members) < n:
        raise ReviewError(
            f"{review.name_of(cluster)} has {len(members)} members, too few for {n} parts."
        )
    from probagg.pac.pac import PAC  # scikit-learn is slow to import

    with warnings.catch_warnings():
        # The page shows the parts, and a part may be empty.
        warnings.simplefilter("ignore")
        pac = PAC(n, **FEATURE_DEFAULTS, balance=0.0, random_state=0)
        pac.fit(np.asarray(X[members], np.float64))
    split = _split_of(pac, cluster, tuple(range(first, first + n)))
    if len(np.unique(split.choose(X[members]))) < n:
        raise ReviewError(
            f"PAC finds fewer than {n} parts in {review.name_of(cluster)}: its members are too "
            "similar. Ask for fewer parts, or move photos by hand."
        )
    rows = np.flatnonzero(_reaching(assigned, review, cluster))
    names = [assigned.names[row] for row in rows]
    return replace(split, members=dict(zip(names, split.choose(X[rows]).tolist(), strict=True)))


def _split_of(pac: Any, cluster: int, parts: tuple[int, ...]) -> Split:
    """Return the rule by which a fitted PAC assigns, in unit vectors, without members."""
    # Rows have length sqrt(1/2), by which cosine is a squared distance.
    moments = pac.moments_
    mass = np.maximum(moments.mass, np.finfo(float).tiny)
    means = moments.first / mass[:, None]
    spread = moments.second / mass - (means * means).sum(1)
    weight = mass**pac.balance
    return Split(
        cluster,
        parts,
        members={},
        mean=(np.sqrt(2.0) * means).astype("<f4").tobytes(),
        weight=tuple((weight / weight.sum()).tolist()),
        spread=tuple((2.0 * spread).tolist()),
    )


def _reaching(assigned: Assignments, review: Review, cluster: int) -> np.ndarray:
    """Return which samples have the cluster as their first, second or chosen one, (N,) bool."""
    kept = replace(review, discarded=frozenset())
    moved, unmoved = kept.apply(assigned), replace(kept, moved={}).apply(assigned)
    tables = (moved.cluster, unmoved.cluster, unmoved.second_cluster)
    return np.any([clusters == cluster for clusters in tables], axis=0)
