"""Clusters of very different sizes: the paper's score splits the large one, GraphPAC does not.

Takes a second, and draws 09_unequal_sizes.png (needs matplotlib).
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from probagg import PAC, ClusteringWarning, GraphPAC, clustering_accuracy

warnings.simplefilter("ignore", ClusteringWarning)  # at balance=1 PAC warns of forced sizes
centers = [[0, 0], [9, 0], [0, 9], [9, 9]]
X, y = make_blobs([900, 60, 40, 20], centers=centers, cluster_std=1.6, random_state=0)
models = {
    "KMeans": KMeans(4, n_init=10, random_state=0),
    "PAC, balance=1 (the paper)": PAC(4, random_state=0),
    "GraphPAC, balance=0.5": GraphPAC(4, balance=0.5, random_state=0),
}
figure, axes = plt.subplots(1, 3, figsize=(10, 3.2))
for axis, (name, model) in zip(axes, models.items(), strict=True):
    labels = model.fit_predict(X)
    accuracy = clustering_accuracy(y, labels)
    print(f"{name}: ACC {accuracy:.3f}")
    axis.scatter(*X.T, c=labels, cmap="tab10", s=5)
    axis.set(title=f"{name}: ACC {100 * accuracy:.0f}", xticks=[], yticks=[])
figure.tight_layout()
figure.savefig("09_unequal_sizes.png", dpi=60)
