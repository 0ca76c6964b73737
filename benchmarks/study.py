"""Run what a table needs and its result file lacks, and print our numbers beside the paper's.

A table's script lists its runs as `Cell`s and does one at a time; `main` gives every such script
the same command line:

    python -m benchmarks table2                          all that is not recorded yet
    python -m benchmarks table2 --only pendigits pac     some of it
    python -m benchmarks table2 --size small --seeds 3   fewer rows and seeds, in table2/small.json

A run is recorded as it ends, so a study that is stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.paper.expected import NotPrintedError, expected
from benchmarks.record import RESULTS, Cell, Results, Row
from probagg.errors import Interrupted, NoData
from probagg.progress import duration

SIZES = ("full", "small", "tiny")  # the paper's, one for a laptop, one for a test
DEEP_SIZES = ("full", "short", "small", "tiny")  # also one for minutes of a GPU
Run = dict[str, Any]  # values of a row, its seconds and its settings


@dataclass(frozen=True)
class Study:
    """A table or figure of the paper."""

    name: str  # of the script and of its part of expected.toml
    cells: Callable[[str, int], Iterable[Cell]]  # of a size and a number of seeds
    run: Callable[[Cell, str], Run]  # a cell at a size; its scores are shares, not percent
    seeds: int = 10
    shown: tuple[str, ...] = ("acc",)  # scores that are printed
    sizes: tuple[str, ...] = SIZES
    lines: Callable[[Study, list[Row]], Iterable[str]] | None = None  # instead of `beside_paper`
    on_request: frozenset[str] = frozenset()  # settings that are run only if --only names them


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
    results = Results.open(study.name, a.size, a.out)
    known = {row.cell for row in results.rows}
    missing = [cell for cell in chosen if a.again or cell not in known]
    print(f"{study.name}, {a.size}: {len(chosen) - len(missing)} of {len(chosen)} runs recorded.")
    for number, cell in enumerate(missing):
        left = time_left(results.rows, missing[number:])
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
        results.put(cell.row({"seconds": time.perf_counter() - began, **run}))
    done = {row.cell: row for row in results.rows}
    rows = [done[cell] for cell in chosen if cell in done]
    for line in (study.lines or beside_paper)(study, rows):
        print(line)
    print(f"In {results.path}")


def _parser(study: Study) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {study.name}")
    parser.add_argument("--size", choices=study.sizes, default="full", help="the paper's, or less")
    parser.add_argument("--seeds", type=int, default=study.seeds, help=f"default {study.seeds}")
    words = ", ".join(words_of(study.cells(study.sizes[0], 1)))
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help=f"any of: {words}")
    parser.add_argument("--again", action="store_true", help="replace recorded runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of results")
    return parser


def words_of(cells: Iterable[Cell]) -> list[str]:
    """Return the data sets, methods and settings of cells."""
    return sorted({value for c in cells for value in (c.data, c.method, c.setting) if value})


def select(cells: list[Cell], only: Sequence[str], on_request: Collection[str] = ()) -> list[Cell]:
    """Return the cells with one of the words in each column that any of the words is in.

    Without such a word, cells with a setting in `on_request` are left out.
    """
    names = words_of(cells)
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


def time_left(done: Iterable[Row], missing: Iterable[Cell]) -> str:
    """Return how long the missing cells will take, by runs of the same data, method and setting.

    A pre-training, recorded as `pretrain_seconds`, is shared by runs of one seed.
    """
    seconds: dict[tuple[str, ...], list[float]] = {}
    pretraining: dict[tuple[str, str], list[float]] = {}
    done, missing = list(done), list(missing)
    for row in done:
        if row.seconds is not None:
            seconds.setdefault((row.data, row.method, row.setting), []).append(row.seconds)
            if before := row.get("pretrain_seconds"):
                pretraining.setdefault((row.data, row.setting), []).append(before)
    known = [key for c in missing if (key := (c.data, c.method, c.setting)) in seconds]
    if not known:
        return ""
    there = {(row.data, row.setting, row.seed) for row in done}
    first = {(c.data, c.setting, c.seed) for c in missing} - there
    total = sum(fmean(seconds[key]) for key in known)
    total += sum(fmean(pretraining.get((data, setting), [0.0])) for data, setting, _ in first)
    others = len(missing) - len(known)
    more = f", and {others} more whose time is not known" if others else ""
    return f", about {duration(total)} left{more}"


def beside_paper(study: Study, rows: Iterable[Row]) -> Iterable[str]:
    """Yield one line for each data set, method and setting: ours, the paper's, the difference."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.data, row.method, row.setting), []).append(row)
    for keys, group in groups.items():
        parts = []
        for score in study.shown:
            values = [row[score] for row in group if row.get(score) is not None]
            if not values:
                continue
            theirs = printed(study.name, *keys, score)
            if theirs is None:  # of a setting of our own
                theirs = printed(study.name, *keys[:2], score)
            beside = "" if theirs is None else f" | {theirs} | {100 * fmean(values) - theirs:+.1f}"
            parts.append(f"{score.upper()} {percent(*values)}{beside}")
        yield f"{', '.join(filter(None, keys)):40} n={len(group):<3} {'   '.join(parts)}"


def percent(*shares: float) -> str:
    """Return shares in percent: up to three as they are, more as mean ± deviation of the sample."""
    values = [100 * share for share in shares]
    if len(values) < 4:
        return ", ".join(f"{value:.1f}" for value in values)
    return f"{fmean(values):.1f} ± {stdev(values):.1f}"


def printed(*keys: str) -> float | None:
    """Return the paper's number, or None where it prints none."""
    try:
        return expected(*filter(None, keys))
    except NotPrintedError:
        return None
