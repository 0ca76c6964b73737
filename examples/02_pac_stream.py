"""PAC on rows that arrive in chunks, in any order, with clusters that move.

Takes five seconds, and draws 02_pac_stream.png (needs matplotlib).
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from probagg import PAC, clustering_accuracy

X, y = load_digits(return_X_y=True)
order = np.argsort(y, kind="stable")  # the hardest order: one class after the other
pac = PAC(n_clusters=10, random_state=0)
for start in range(0, len(X), 100):
    pac.partial_fit(X[order[start : start + 100]])
whole = PAC(n_clusters=10, random_state=0).fit(X)
print(f"sorted by class, in {pac.n_iter_} chunks: ACC {clustering_accuracy(y, pac.predict(X)):.3f}")
print(f"fit on all rows at once:          ACC {clustering_accuracy(y, whole.labels_):.3f}")


def turning_blobs(steps, seed=0):
    """Yield chunks of five blobs on a circle that turns once."""
    rng = np.random.default_rng(seed)
    for step in range(steps):
        group = rng.integers(5, size=200)
        angle = 2 * np.pi * (group / 5 + step / steps)
        yield 8 * np.c_[np.cos(angle), np.sin(angle)] + rng.normal(size=(200, 2)), group


figure, axes = plt.subplots(1, 3, figsize=(9, 2.9))
for axis, forgetting in zip(axes, (1.0, 0.8), strict=False):
    pac, found, means = PAC(n_clusters=5, forgetting=forgetting, random_state=0), [], []
    for chunk, group in turning_blobs(60):
        pac.partial_fit(chunk)
        found.append(clustering_accuracy(group, pac.labels_))  # labels_ are of this chunk
        means.append(pac.cluster_means_)
    print(f"moving clusters, forgetting={forgetting}: ACC {np.mean(found[-20:]):.3f}")
    for path in np.swapaxes(means, 0, 1):
        axis.plot(*path.T, linewidth=1)
        axis.plot(*path[-1], "o", markersize=5, color="k")
    axis.set(title=f"means, forgetting={forgetting}", xticks=[], yticks=[], aspect="equal")
    axes[2].plot(found, label=f"forgetting={forgetting}")
axes[2].set(title="ACC of each chunk", xlabel="chunk", ylim=(0, 1.03))
axes[2].legend()
figure.tight_layout()
figure.savefig("02_pac_stream.png", dpi=72)
