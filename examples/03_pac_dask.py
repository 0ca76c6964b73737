"""PAC on a Dask cluster: the same estimator for data in many places.

Needs Dask (`pip install -e ".[dask]"` in a clone) and matplotlib. Takes some ten seconds, and draws
03_pac_dask.png.
"""

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

from probagg import PAC, clustering_accuracy

CENTERS = np.random.default_rng(0).uniform(-10, 10, (5, 8))


def draw(block, block_info=None):
    """Return the rows of one chunk, drawn by the worker that holds it: one class per chunk."""
    number = block_info[0]["chunk-location"][0]
    noise = np.random.default_rng(number).standard_normal(block.shape)
    return CENTERS[number % 5] + 3 * noise


def main():
    """Cluster 20,000 rows on two workers."""
    with LocalCluster(2, threads_per_worker=1, dashboard_address=None) as workers, Client(workers):
        X = da.zeros((20_000, 8), chunks=(2_000, -1)).map_blocks(draw, meta=np.empty((0, 0)))
        X = X.persist()  # every sweep reads the rows several times: keep them on the workers

        pac = PAC(n_clusters=5, random_state=0).fit(X)
        print(f"{X.numblocks[0]} chunks, {pac.n_iter_} sweeps, J {pac.objective_:.6g}")

        print(f"labels_ is lazy: {pac.labels_}")
        classes = np.repeat(np.arange(10) % 5, 2_000)
        print(f"ACC {clustering_accuracy(classes, pac.labels_.compute()):.3f}")
        print(f"cluster sizes: {da.bincount(pac.labels_, minlength=5).compute().tolist()}")

        some = X[::20].compute()  # the only rows that leave the workers
        labels = pac.labels_[::20].compute()
        chunks = np.repeat(np.arange(10), 2_000)[::20]
        figure, axes = plt.subplots(1, 2, figsize=(8, 3.4))
        views = (("ten chunks, each of one class", chunks), ("five clusters", labels))
        for axis, (title, colour) in zip(axes, views, strict=True):
            axis.scatter(*some[:, :2].T, c=colour, cmap="tab10", s=5)
            axis.set(title=title, xticks=[], yticks=[])
        figure.tight_layout()
        figure.savefig("03_pac_dask.png", dpi=72)


if __name__ == "__main__":
    main()
