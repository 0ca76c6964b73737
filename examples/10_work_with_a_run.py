"""Work with a run: correct some rows, cluster again with them, add new rows, see what to look at.

The corrections are made on the review page (`probagg report RUN --serve`); here a program writes
the same file. Takes some seconds, and draws 10_work_with_a_run.png (needs matplotlib).
"""

import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

import probagg

centers = [[0, 0], [4.2, 0], [2, 7], [9, 6]]  # the first two overlap, the last comes later
X, y = make_blobs([150, 150, 150, 60], centers=centers, cluster_std=1.3, random_state=4)
first = y < 3

with tempfile.TemporaryDirectory() as temporary:
    here = Path(temporary)
    np.save(here / "first.npy", X[first])
    np.save(here / "all.npy", np.vstack([X[first], X[~first]]))

    run = probagg.cluster(here / "first.npy", 3, out=here / "run", report=False)
    look = run.select(12)
    print("look first at rows", ", ".join(look.names))
    print("most similar to row 0:", ", ".join(run.similar("0", 5).names))

    # What a person would move: doubtful rows that lie in the wrong one of the first two clusters.
    table = run.assignments
    number = [int(np.bincount(table.cluster[y[first] == k]).argmax()) for k in range(3)]
    wrong = np.flatnonzero(table.cluster != np.array(number)[y[first]])
    moved = {table.names[row]: number[y[first][row]] for row in wrong[:6]}
    review = {"format": "probagg.review/2", "names": {str(number[2]): "above"}, "moved": moved}
    (run.path / "review.json").write_text(json.dumps(review))

    refined = probagg.open_run(run.path).refine(report=False)
    print(f"refined: {refined.result['refined']['n_changed']} rows changed, {refined.review.names}")
    updated = refined.update(here / "all.npy", new_clusters="auto", report=False)
    print(f"updated: {updated.result['updated']['new_clusters']} (new cluster: rows)")

    rows = np.vstack([X[first], X[~first]])
    shown = {
        "clustered, corrections ringed": table.cluster,
        "refined": refined.assignments.cluster,
        "updated with new rows": updated.assignments.cluster,
    }
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharex=True, sharey=True)
    for axis, (title, labels) in zip(axes, shown.items(), strict=True):
        axis.scatter(*rows[: len(labels)].T, c=labels, cmap="tab10", vmin=0, vmax=9, s=8)
        axis.set(title=title, xticks=[], yticks=[])
    axes[0].scatter(*rows[wrong[:6]].T, s=70, facecolors="none", edgecolors="k")
    figure.tight_layout()
    figure.savefig("10_work_with_a_run.png", dpi=72)
