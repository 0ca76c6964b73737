"""How many clusters: a number, its interval, and when there is no answer.

Takes some seconds, and draws 08_choosing_k.png (needs matplotlib).
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, make_blobs

from probagg import select_n_clusters

sets = {
    "six blobs": make_blobs(600, 4, centers=6, random_state=3)[0],
    "digits, ten classes": load_digits().data[:600],
    "one cloud": np.random.default_rng(0).normal(size=(600, 4)),
}
figure, axes = plt.subplots(1, 3, figsize=(10, 3))
for axis, (name, X) in zip(axes, sets.items(), strict=True):
    found = select_n_clusters(X, candidates=(2, 20), random_state=0)
    low, high = found.interval
    print(f"{name}: {found.n_clusters}, {low} to {high}. {found.reason}")
    axis.axvspan(low - 0.3, high + 0.3, color="0.9")
    K = [row.n_clusters for row in found.table]
    axis.plot(
        K,
        [row.silhouette - row.silhouette_null for row in found.table],
        "o-",
        ms=4,
        label="silhouette",
    )
    axis.plot(
        K,
        [row.modularity - row.modularity_null for row in found.table],
        "s-",
        ms=4,
        label="modularity",
    )
    axis.axvline(found.n_clusters, color="tab:red", linewidth=1)
    clear = f"{found.n_clusters} ({low} to {high})" if found.clear else "no clear structure"
    axis.set(title=f"{name}: {clear}", xlabel="K", ylim=(-0.05, 0.65))
axes[0].set_ylabel("gain over a single Gaussian")
axes[0].legend()
figure.tight_layout()
figure.savefig("08_choosing_k.png", dpi=72)
