"""Run what a table needs and its result file lacks, and print our numbers beside the paper's.

A table's script lists its runs as `Cell`s and does one at a time; `main` gives every such script
the same command line:

    python -m benchmarks table2                          all that is not recorded yet
    python -m benchmarks table2 --only pendigits pac     some of it
    python -m benchmarks table2 --size small --seeds 3   fewer rows and seeds, in table2.small.json

A run is recorded as it ends, with its settings, data, time, versions and machine, so a study that
is stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from benchmarks.paper.expected import NotPrintedError, expected
from benchmarks.record import commit
from probagg.environment import environment
from probagg.errors import Interrupted, NoData
from probagg.progress import duration
from probagg.storage import write_atomically

RESULTS = Path(__file__).parent / "results"
SIZES = ("full", "small", "tiny")  # the paper's, one for a laptop, one for a test
DEEP_SIZES = ("full", "short", "small", "tiny")  # also one for minutes of a GPU
Run = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One run of a table: a method on a data set with a seed and, in some tables, a setting."""

    data: str
    method: str
    setting: str = ""
    seed: int = 0

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.data, self.method, self.setting, f"seed {self.seed}")))


@dataclass(frozen=True)
class Study:
    """A table or figure of the paper."""

    name: str  # of the script and of its part of expected.toml
    cells: Callable[[str, int], Iterable[Cell]]  # of a size and a number of seeds
    run: Callable[[Cell, str], Run]  # a cell at a size; its scores are shares, not percent
    seeds: int = 10
    shown: tuple[str, ...] = ("acc",)  # scores that are printed
    sizes: tuple[str, ...] = SIZES
    lines: Callable[[Study, list[Run]], Iterable[str]] | None = None  # instead of `beside_paper`
    on_request: frozenset[str] = frozenset()  # settings that are run only if --only names them


class Record:
    """The result file of a study at one size: its runs, each with the environment it ran in."""

    def __init__(self, path: Path, study: str, size: str) -> None:
        self.path = path
        self.content: dict[str, Any] = {
            "study": study,
            "size": size,
            "environments": [],
            "runs": [],
        }
        if path.is_file():
            self.content = json.loads(path.read_text(encoding="utf-8"))

    @property
    def runs(self) -> list[Run]:
        return self.content["runs"]

    def of(self, cell: Cell) -> Run | None:
        """Return the run of a cell, or None."""
        keys = asdict(cell)
        return next((run for run in self.runs if keys.items() <= run.items()), None)

    def add(self, cell: Cell, run: Run) -> None:
        """Write a run in place of an earlier one of the same cell."""
        run = {**asdict(cell), **run, "environment": self._environment()}
        self.content["runs"] = [old for old in self.runs if old is not self.of(cell)] + [run]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, one_per_line(self.content).encode())

    def _environment(self) -> int:
        """Return the number of this machine, with its versions, among those of the file."""
        here = environment() | {"commit": commit()}
        del here["time"], here["command"]
        known = self.content["environments"]
        if here not in known:
            known.append(here)
        return known.index(here)


def one_per_line(content: dict[str, Any]) -> str:
    """Return JSON with each element of a list on a line of its own."""

    def value(item: Any) -> str:
        if not isinstance(item, list):
            return json.dumps(item)
        return "[\n" + ",\n".join(f"  {json.dumps(element)}" for element in item) + "\n ]"

    lines = (f" {json.dumps(key)}: {value(item)}" for key, item in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


@contextmanager
def stopped_in_words() -> Iterator[None]:
    """Turn Ctrl-C into one line and the shell's exit code for it."""
    try:
        yield
    except KeyboardInterrupt:
        print("Stopped. The same command goes on after the last recorded run.", file=sys.stderr)
        raise SystemExit(130) from None


@stopped_in_words()
def main(study: Study, arguments: Sequence[str] | None = None) -> None:
    """Do the runs that the command line asks for and the result file lacks."""
    a = _parser(study).parse_args(arguments)
    cells = list(study.cells(a.size, a.seeds))
    chosen = select(cells, a.only, study.on_request)
    suffix = "" if a.size == "full" else f".{a.size}"
    record = Record(a.out / f"{study.name}{suffix}.json", study.name, a.size)
    missing = [cell for cell in chosen if a.again or record.of(cell) is None]
    print(f"{study.name}, {a.size}: {len(chosen) - len(missing)} of {len(chosen)} runs recorded.")
    for number, cell in enumerate(missing):
        left = time_left(record.runs, missing[number:])
        print(f"{number + 1} of {len(missing)}{left}: {cell}", flush=True)
        began = time.perf_counter()
        try:
            run = study.run(cell, a.size)
        except NoData as missing_data:
            print(f"  not run: {missing_data}")
            continue
        except Interrupted as stopped:
            print(f"{stopped} The same command resumes it.")
            raise SystemExit(75) from stopped
        record.add(cell, {"seconds": time.perf_counter() - began, **run})
    done = [run for cell in chosen if (run := record.of(cell))]
    for line in (study.lines or beside_paper)(study, done):
        print(line)
    print(f"In {record.path}")


def _parser(study: Study) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {study.name}")
    parser.add_argument("--size", choices=study.sizes, default="full", help="the paper's, or less")
    parser.add_argument("--seeds", type=int, default=study.seeds, help=f"default {study.seeds}")
    parser.add_argument("--only", nargs="+", default=[], help="data sets, methods or settings")
    parser.add_argument("--again", action="store_true", help="replace recorded runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    return parser


def select(cells: list[Cell], only: Sequence[str], on_request: Collection[str] = ()) -> list[Cell]:
    """Return the cells with one of the words in each column that any of the words is in.

    Without such a word, cells with a setting in `on_request` are left out.
    """
    names = sorted({value for c in cells for value in (c.data, c.method, c.setting) if value})
    for column in ("data", "method", "setting"):
        values = {getattr(cell, column) for cell in cells}
        if wanted := values.intersection(only):
            cells = [cell for cell in cells if getattr(cell, column) in wanted]
            only = [word for word in only if word not in wanted]
        elif column == "setting":
            cells = [cell for cell in cells if cell.setting not in on_request]
    if only:
        raise SystemExit(f"--only has {only[0]!r}; possible are {', '.join(names)}.")
    return cells


def time_left(done: Iterable[Run], missing: Iterable[Cell]) -> str:
    """Return how long the missing cells will take, by runs of the same data set and method."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for run in done:
        seconds.setdefault((run["data"], run["method"]), []).append(run["seconds"])
    if not seconds:
        return ""
    any_run = fmean(value for values in seconds.values() for value in values)
    each = (fmean(seconds.get((cell.data, cell.method), [any_run])) for cell in missing)
    return f", about {duration(sum(each))} left"


def beside_paper(study: Study, runs: Iterable[Run]) -> Iterable[str]:
    """Yield one line for each data set, method and setting: ours, the paper's, the difference."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault((run["data"], run["method"], run["setting"]), []).append(run)
    for keys, group in groups.items():
        parts = []
        for score in study.shown:
            values = [100 * run[score] for run in group if run.get(score) is not None]
            if not values:
                continue
            theirs = printed(study.name, *keys, score)
            if theirs is None:  # of a setting of our own
                theirs = printed(study.name, *keys[:2], score)
            beside = "" if theirs is None else f" | {theirs} | {fmean(values) - theirs:+.1f}"
            parts.append(f"{score.upper()} {fmean(values):.1f} ± {pstdev(values):.1f}{beside}")
        yield f"{', '.join(filter(None, keys)):40} n={len(group):<3} {'   '.join(parts)}"


def printed(*keys: str) -> float | None:
    """Return the paper's number, or None where it prints none."""
    try:
        return expected(*filter(None, keys))
    except NotPrintedError:
        return None
