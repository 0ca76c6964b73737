"""PAC in place of KMeans: cluster digits, see typical and borderline ones, assign new rows, save.

Takes seconds, and draws 01_pac.png (needs matplotlib).
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

from probagg import PAC, clustering_accuracy, critical_m

X, y = load_digits(return_X_y=True)
X_train, X_new, y_train, y_new = train_test_split(X, y, random_state=0)
print(f"no cluster can form at or above m = {critical_m(X_train):.3f}; the default is 1.03")

pac = PAC(n_clusters=10, n_init=10, random_state=0).fit(X_train)
print(f"training rows: ACC {clustering_accuracy(y_train, pac.labels_):.3f}, {pac.n_iter_} sweeps")
print(f"new rows:      ACC {clustering_accuracy(y_new, pac.predict(X_new)):.3f}")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.safetensors"
    pac.save(path)
    again = PAC.load(path)
    same = (again.predict(X_new) == pac.predict(X_new)).all()
    print(f"saved in {path.stat().st_size} bytes; predicts the same: {same}")

# The map is the first two principal axes: colours mix by probability, and new rows have a rim.
colours = plt.colormaps["tab10"](np.arange(10))[:, :3]
axes_of = PCA(2, random_state=0).fit(X_train)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), width_ratios=[1, 1.1])
left.scatter(*axes_of.transform(X_train).T, c=pac.probabilities_ @ colours, s=5)
new = pac.predict_proba(X_new)
left.scatter(*axes_of.transform(X_new).T, c=new @ colours, s=14, edgecolors="k", linewidths=0.4)
left.set(title="digits, coloured by cluster; new rows with a rim", xticks=[], yticks=[])

sure = pac.probabilities_.max(axis=1)
rows = []
for k in range(10):
    members = np.flatnonzero(pac.labels_ == k)
    members = members[np.argsort(-sure[members])]
    shown = np.r_[members[:7], members[-5:]]
    rows.append(np.hstack([np.pad(X_train[i].reshape(8, 8), 1) for i in shown]))
right.imshow(np.vstack(rows), cmap="gray_r")
right.axvline(7 * 10 - 0.5, color="tab:red", linewidth=1)
right.set(title="one cluster per row: most and least certain", xticks=[], yticks=[])
figure.tight_layout()
figure.savefig("01_pac.png", dpi=72)
