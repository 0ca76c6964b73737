"""Long runs with random kills: the result of an undisturbed one, in constant memory.

python tests/faults/soak.py FOLDER [--images 20000] [--minutes 30] [--device cpu]

Images are generated in FOLDER. DPAC clusters them twice undisturbed. Then, for as many minutes as
asked for, it clusters them again and again, is ended at random moments of training by SIGKILL,
SIGTERM, SIGHUP and SIGUSR1, and resumed. Every run must find the shapes that were drawn. On a CPU
all must give the same weights and table. On a GPU sums of floats differ from run to run: there the
labels of a resumed run must agree with those of an undisturbed one. The memory of a long
undisturbed run must not grow between the middle and the end.
"""

import argparse
import csv
import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from probagg.app.run.folder import is_finished, unfinished
from probagg.metrics import clustering_accuracy

SETTINGS = (
    "network.backbone=convnet", "network.width=8", "network.classifier=[32]", "views.size=16",
    "pretext.head=[32, 16]", "pretrain.batch_size=256", "cluster.batch_size=256",
    "self_label.batch_size=256",
)  # fmt: skip
# Without the command line, whose packages a GPU machine may lack.
CLUSTER = """
import json, sys
import probagg
probagg.cluster(sys.argv[1], 5, out=sys.argv[3], **json.loads(sys.argv[2]))
"""
STAGES = ("pretrain", "cluster", "self_label")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
GROWTH = 1.1  # of memory, that counts as constant in a run of LONG seconds
LONG = 600.0
AGREEMENT = 0.98  # of labels on a GPU, with the undisturbed run and with the shapes


def picture(number: int) -> np.ndarray:
    """Return a square, bar, cross, disc or frame with noise, by a number: 32 x 32 grey levels."""
    rows, columns = np.mgrid[:32, :32] - 15.5
    shapes = (
        np.maximum(abs(rows), abs(columns)) < 8,
        abs(rows) < 4,
        np.minimum(abs(rows), abs(columns)) < 3,
        rows**2 + columns**2 < 100,
        np.maximum(abs(rows), abs(columns)) > 12,
    )
    noise = np.random.default_rng(number).integers(0, 100, (32, 32))
    return (150 * shapes[number % len(shapes)] + noise).astype(np.uint8)


def generate(folder: Path, count: int) -> None:
    """Write pictures, each by its number."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path = folder / f"{number:06}.png"
        if not path.exists():
            Image.fromarray(picture(number)).save(path)


class Soak:
    """Runs of one command on one folder of images."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.folder, self.options = options.folder, options
        self.rng = random.Random(0)
        self.ended: Counter[str] = Counter()
        generate(self.folder / "photos", options.images)

    def start(self, out: Path) -> subprocess.Popen:
        """Start a run in a process of its own; started again, it resumes."""
        epochs = zip(STAGES, self.options.epochs, strict=True)
        settings = [*SETTINGS, *(f"{stage}.epochs={count}" for stage, count in epochs)]
        how = {
            "method": "dpac",
            "device": self.options.device,
            "settings": settings,
            "report": False,
        }
        command = [self.folder / "photos", json.dumps(how), out]
        return subprocess.Popen([sys.executable, "-c", CLUSTER, *command])

    def undisturbed(self, out: Path) -> tuple[float, list[int]]:
        """Return the seconds of a whole run, and its memory at every second."""
        began, memory = time.monotonic(), []
        process = self.start(out)
        while process.poll() is None:
            memory.append(resident(process))
            time.sleep(1.0)
        assert process.returncode == 0
        return time.monotonic() - began, [size for size in memory if size]

    def disturbed(self, out: Path, stops: int) -> None:
        """End and resume a run some epochs after each start, then let it finish."""
        for left in range(stops, -1, -1):
            process, epochs = self.start(out), self.rng.randint(1, sum(self.options.epochs) // 3)
            goal = epochs_of(out) + epochs
            while process.poll() is None and not (left and epochs_of(out) >= goal):
                time.sleep(0.01)
            if process.poll() is None:
                time.sleep(self.rng.uniform(0.0, 0.5))
                chosen = self.rng.choice(SIGNALS)
                process.send_signal(chosen)
                if process.wait() and not is_finished(out):
                    self.ended[chosen.name] += 1
                    continue
            assert process.returncode == 0
            return


def epochs_of(out: Path) -> int:
    """Return how many epochs an unfinished run has recorded."""
    path = unfinished(out) / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def resident(process: subprocess.Popen) -> int:
    """Return the memory of a process in bytes; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS")), 0)


def read(run: Path) -> tuple[list[str], list[int], list[int], np.ndarray]:
    """Return the checksums of what a run found, its labels, the shapes and the probabilities."""
    names = ("assignments.csv", "model.safetensors")
    with open(run / "assignments.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return (
        [hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names],
        [int(row["cluster"]) for row in rows],
        [int(Path(row["path"]).stem) % 5 for row in rows],
        np.array([float(row["probability"]) for row in rows]),
    )


def compare(run: Path, other: Path) -> dict[str, Any]:
    """Return how far a run agrees with an undisturbed one and with the shapes."""
    (digests, labels, shapes, P), (theirs, others, _, Q) = read(run), read(other)
    return {
        "equal to the byte": digests == theirs,
        "same cluster": round(clustering_accuracy(others, labels), 4),
        "right shape": round(clustering_accuracy(shapes, labels), 4),
        "mean change of p": round(float(np.abs(P - Q).mean()), 4),
        "sizes": sorted(Counter(labels).values()),
    }


def main() -> None:
    """Run both, compare, and write the figures to FOLDER/soak.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, nargs=3, default=(4, 4, 2), help="of the stages")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--stops", type=int, default=6, help="of each run, at most")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    soak, whole, again = Soak(options), options.folder / "whole", options.folder / "again"
    seconds, memory = soak.undisturbed(whole)
    soak.undisturbed(again)
    half, quarter = len(memory) // 2, max(1, len(memory) // 4)
    middle, end = max(memory[half - quarter : half + 1]), max(memory[-quarter:])
    figures = {
        "images": options.images,
        "device": options.device,
        "seconds undisturbed": round(seconds),
        "MB in the middle": middle // 10**6,
        "MB at the end": end // 10**6,
        "runs": [compare(again, whole)],
    }
    deadline, number = time.monotonic() + 60 * options.minutes, 0
    while not number or time.monotonic() < deadline:
        out = options.folder / f"killed-{number}"
        soak.disturbed(out, options.stops)
        figures["runs"].append(compare(out, whole))
        figures["ended by"] = soak.ended
        (options.folder / "soak.json").write_text(json.dumps(figures, indent=1))
        sys.stdout.write(json.dumps(figures["runs"][-1]) + "\n")
        number += 1
    same = "equal to the byte" if options.device == "cpu" else "same cluster"
    least = min(min(run[same], run["right shape"]) for run in figures["runs"])
    grew = seconds > LONG and end > GROWTH * middle
    if least < AGREEMENT or not soak.ended or grew:
        sys.exit("Runs differ or miss the shapes, none was ended, or memory grew.")


if __name__ == "__main__":
    main()
