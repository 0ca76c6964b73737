"""Long runs with random kills: the result of an undisturbed one, in constant memory.

python tests/faults/soak.py FOLDER [--images 20000] [--minutes 30]

Images are generated in FOLDER. DPAC clusters them once undisturbed. Then, for as many minutes as
asked for, it clusters them again and again and is ended at random moments by SIGKILL, SIGTERM and
SIGHUP, and resumed. All runs must give the same weights and labels. The memory of the undisturbed
run must not grow between the middle and the end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

from probagg.app.run.folder import is_finished

SETTINGS = (
    "network.backbone=convnet", "network.width=8", "network.classifier=[32]", "views.size=16",
    "pretext.head=[32, 16]", "pretrain.epochs=4", "cluster.epochs=4", "self_label.epochs=2",
    "pretrain.batch_size=256", "cluster.batch_size=256", "self_label.batch_size=256",
)  # fmt: skip
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
GROWTH = 1.1  # of memory, that counts as constant


def generate(folder: Path, count: int) -> None:
    """Write squares, bars, crosses, discs and frames with noise, each image by its number."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, columns = np.mgrid[:32, :32] - 15.5
    shapes = (
        np.maximum(abs(rows), abs(columns)) < 8,
        abs(rows) < 4,
        np.minimum(abs(rows), abs(columns)) < 3,
        rows**2 + columns**2 < 100,
        np.maximum(abs(rows), abs(columns)) > 12,
    )
    for number in range(count):
        path = folder / f"{number:06}.png"
        if not path.exists():
            rng = np.random.default_rng(number)
            pixels = 150 * shapes[number % len(shapes)] + rng.integers(0, 100, (32, 32))
            Image.fromarray(pixels.astype(np.uint8)).save(path)


def start(photos: Path, out: Path) -> subprocess.Popen:
    """Start `probagg cluster`; the same command resumes."""
    command = [sys.executable, "-m", "probagg", "cluster", str(photos), "-k", "5"]
    command += ["--method", "dpac", "--device", "cpu", "--out", str(out), "--no-report", "--quiet"]
    command += [part for setting in SETTINGS for part in ("--set", setting)]
    return subprocess.Popen(command)


def resident(process: subprocess.Popen) -> int:
    """Return the memory of a process in bytes; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS")), 0)


def undisturbed(photos: Path, out: Path) -> tuple[float, list[int]]:
    """Return the seconds of a whole run, and its memory at every second."""
    began, memory = time.monotonic(), []
    process = start(photos, out)
    while process.poll() is None:
        memory.append(resident(process))
        time.sleep(1.0)
    assert process.returncode == 0
    return time.monotonic() - began, [size for size in memory if size]


def disturbed(photos: Path, out: Path, whole: float, rng: random.Random) -> Counter[str]:
    """End and resume a run up to six times, then let it finish; return which signals ended it."""
    counts: Counter[str] = Counter()
    for _ in range(6):
        process = start(photos, out)
        try:
            process.wait(rng.uniform(0.02, 0.6) * whole)
            break
        except subprocess.TimeoutExpired:
            chosen = rng.choice(SIGNALS)
            counts[chosen.name] += 1
            process.send_signal(chosen)
            process.wait()
            if is_finished(out):  # the signal came while only the page was missing
                return counts
    else:
        process = start(photos, out)
        process.wait()
    assert process.returncode == 0
    return counts


def digest(run: Path) -> dict[str, str]:
    """Return the checksums of what a run found."""
    names = ("assignments.csv", "model.safetensors")
    return {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names}


def main() -> None:
    """Run both, compare, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=30.0)
    options = parser.parse_args()
    photos, whole = options.folder / "photos", options.folder / "whole"
    generate(photos, options.images)
    seconds, memory = undisturbed(photos, whole)
    deadline, rng = time.monotonic() + 60 * options.minutes, random.Random(0)
    counts, equal = Counter(), []
    while not equal or time.monotonic() < deadline:
        out = options.folder / f"killed-{len(equal)}"
        counts += disturbed(photos, out, seconds, rng)
        equal.append(digest(out) == digest(whole))
    half, quarter = len(memory) // 2, max(1, len(memory) // 4)
    middle, end = max(memory[half - quarter : half + 1]), max(memory[-quarter:])
    figures = {
        "images": options.images,
        "seconds undisturbed": round(seconds),
        "disturbed runs": len(equal),
        "of them equal": sum(equal),
        "ended by": counts,
        "MB in the middle": middle // 10**6,
        "MB at the end": end // 10**6,
    }
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    if not all(equal) or end > GROWTH * middle:
        sys.exit("Runs differ, or memory grew.")


if __name__ == "__main__":
    main()
