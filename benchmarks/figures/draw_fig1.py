"""Draw docs/fig1.png: ACC of PAC and FCM by m on Pendigits (results/fig1/full.json).

python -m benchmarks draw_fig1
"""

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.figures.drawing import arguments, save
from benchmarks.figures.tables import recorded

STYLES = {"pac": ("PAC", "#1f6feb", "o-"), "fcm": ("FCM", "#b35900", "s-")}


def curve(runs, method):
    """Return the values of m of a method, and mean and deviation of ACC in percent at each."""
    by_m = {}
    for run in runs:
        if run.method == method:
            by_m.setdefault(float(run.setting), []).append(100 * run["acc"])
    m = np.array(sorted(by_m))
    values = np.array([by_m[x] for x in m])
    return m, values.mean(1), values.std(1, ddof=1)


def main():
    """Draw the picture."""
    a = arguments(__doc__, "fig1.png")
    runs = recorded("fig1").rows
    seeds = 1 + max(run.seed for run in runs)
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
    save(figure, a.out)
