"""Draw docs/fig1.png: ACC of PAC and FCM by m on Pendigits (results/fig1.json).

python -m benchmarks draw_fig1
"""

import json

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks import ROOT

DOCS = ROOT / "docs"
STYLES = {"pac": ("PAC", "#1f6feb", "o-"), "fcm": ("FCM", "#b35900", "s-")}


def curve(runs, method):
    """Return the values of m of a method, and mean and deviation of ACC in percent at each."""
    by_m = {}
    for run in runs:
        if run["method"] == method:
            by_m.setdefault(float(run["setting"]), []).append(100 * run["acc"])
    m = np.array(sorted(by_m))
    return m, np.array([np.mean(by_m[x]) for x in m]), np.array([np.std(by_m[x]) for x in m])


def main():
    """Draw the picture."""
    plt.rcParams |= {"font.family": "DejaVu Sans", "font.size": 10}
    runs = json.loads((ROOT / "benchmarks/results/fig1.json").read_text())["runs"]
    seeds = 1 + max(run["seed"] for run in runs)
    figure, axis = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
    for method, (name, colour, style) in STYLES.items():
        m, mean, deviation = curve(runs, method)
        axis.plot(m, mean, style, c=colour, ms=4, label=name)
        axis.fill_between(m, mean - deviation, mean + deviation, color=colour, alpha=0.15, lw=0)
    critical = runs[0]["critical_m"]
    axis.axvline(critical, c="0.4", ls="--")
    axis.text(critical + 0.01, 8, f"critical m of PAC,\npredicted: {critical:.2f}", c="0.3")
    axis.set(xlabel="m", ylabel="ACC, %", ylim=(0, 90), xlim=(1, 2.02))
    axis.set_title(f"Pendigits: mean ± standard deviation of {seeds} seeds", fontsize=10)
    axis.legend(frameon=False, loc="lower right")
    axis.spines[["top", "right"]].set_visible(False)
    path = DOCS / "fig1.png"
    figure.savefig(path, dpi=130)
    print(f"written to {path}")
