"""PAC in place of KMeans: cluster digits, predict, save, use a pipeline. Takes a second."""

import tempfile
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probagg import PAC, clustering_accuracy, critical_m

X, y = load_digits(return_X_y=True)
X_train, X_new, y_train, y_new = train_test_split(X, y, random_state=0)
print(f"no cluster can form at or above m = {critical_m(X_train):.3f}; the default is 1.03")

pac = PAC(n_clusters=10, n_init=10, random_state=0).fit(X_train)
print(f"training rows: ACC {clustering_accuracy(y_train, pac.labels_):.3f}, {pac.n_iter_} sweeps")
print(f"new rows:      ACC {clustering_accuracy(y_new, pac.predict(X_new)):.3f}")

uncertain = pac.probabilities_.max(1) < 0.6
print(f"{uncertain.sum()} of {len(uncertain)} digits have no cluster of probability 0.6 or more")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.safetensors"
    pac.save(path)
    again = PAC.load(path)
    same = (again.predict(X_new) == pac.predict(X_new)).all()
    print(f"saved in {path.stat().st_size} bytes; predicts the same: {same}")

pipeline = make_pipeline(StandardScaler(), PAC(n_clusters=10, metric="cosine", random_state=0))
print(f"scaled, cosine: ACC {clustering_accuracy(y, pipeline.fit_predict(X)):.3f}")
