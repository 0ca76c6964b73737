"""Soft clusters: probabilities as colours, from almost hard assignments to almost uniform ones.

m sets how soft they are, up to the critical m of the data, at which no cluster forms. Takes a
second, and draws 07_soft_clusters.png (needs matplotlib).
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning

from probagg import PAC, critical_m

warnings.simplefilter("ignore", ConvergenceWarning)  # PAC warns above the critical m
X, _ = make_blobs(600, centers=[[0, 0], [5, 1], [2, 5]], cluster_std=1.4, random_state=2)
limit = critical_m(X)
colours = np.array([[0.84, 0.27, 0.23], [0.16, 0.47, 0.71], [0.95, 0.65, 0.15]])

figure, axes = plt.subplots(1, 4, figsize=(10, 2.8))
for axis, m in zip(axes, (1.03, 1.2, limit - 0.08, limit + 0.05), strict=True):
    pac = PAC(3, m=m, random_state=0).fit(X)
    between = (pac.probabilities_.max(axis=1) < 0.9).mean()
    print(f"m = {m:.2f}: {between:.0%} of the rows have no cluster of probability 0.9")
    axis.scatter(*X.T, c=(pac.probabilities_ @ colours).clip(0, 1), s=7)
    axis.set(title=f"m = {m:.2f}: {between:.0%} below 0.9", xticks=[], yticks=[])
figure.suptitle(f"the critical m of these rows is {limit:.2f}", fontsize=10)
figure.tight_layout()
figure.savefig("07_soft_clusters.png", dpi=72)
