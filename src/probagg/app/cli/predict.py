"""probagg predict: the clusters of new samples, from a finished run."""

from __future__ import annotations

import glob
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from probagg.app.cli.options import (
    AsJson,
    CopyTo,
    LinkTo,
    Overwrite,
    Quiet,
    RunPath,
    TrustCode,
    example,
)
from probagg.app.cli.terminal import Terminal, deliver, guarded
from probagg.app.run.output import Output, check_sorting, sort_images
from probagg.app.run.run import open_run
from probagg.data.opening import suggest
from probagg.data.photo import is_image
from probagg.data.photos import FolderImages
from probagg.errors import InputError, NoData, reading
from probagg.progress import duration
from probagg.storage import encode, read_bytes

EXAMPLE = example(
    "probagg predict runs/photos new/ --out new.csv",
    "Writes one line per photo, with the columns of assignments.csv.\n\n\b\nOther ways to name "
    "photos:\n  probagg predict runs/photos a.jpg b.heic\n  probagg predict runs/photos "
    "'new/**/*.jpg'\n  find new -mtime -1 -name '*.jpg' | probagg predict runs/photos -",
)


def predict(
    run: RunPath,
    source: Annotated[
        list[str],
        typer.Argument(
            help="New images or rows, as for probagg cluster. Image files may also be named one by "
            "one, by a pattern in quotes, by @list.txt with a path per line, or by - for paths on "
            "standard input.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write. [default: standard output]")
    ] = None,
    copy_to: CopyTo = None,
    link_to: LinkTo = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    overwrite: Overwrite = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Assign new samples to the clusters of a RUN, without fitting."""
    terminal = Terminal(quiet=quiet, aside=out is None or as_json)
    with guarded(terminal, as_json=as_json) as give:
        opened = open_run(run, trust_code=trust_code)
        given = read_sources(source)
        files = [given] if isinstance(given, str) else given
        output = None if out is None else _output(out, files, overwrite)
        targets = [target for target in (copy_to, link_to) if target is not None]
        if targets and not isinstance(given, str):
            raise InputError("--copy-to and --link-to need one SOURCE, a folder or a photo.")
        folder = Path(files[0]).expanduser()
        for target in targets:
            check_sorting(folder, target, run, *(t for t in targets if t is not target))
        began = time.perf_counter()
        samples, assigned = opened.assign(given, device, terminal)
        for line in samples.left_out():
            terminal.warn(line)
        seconds = duration(time.perf_counter() - began)
        title = " ".join(source[:3]) + " ..." * (len(source) > 3)
        terminal.say(f"{title}: {len(samples):,} {samples.noun} in {seconds}")
        if opened.yardstick is None:
            terminal.say(f"distances and outliers are not known: no yardstick.safetensors in {run}")
        review = opened.review
        for k, size in zip(*np.unique(assigned.cluster, return_counts=True), strict=True):
            terminal.say(f"  {review.name_of(k)}: {size:,}")
        if output is not None:
            output.write(encode(assigned.to_csv()))
            terminal.say(f"written to {out}")
        elif not as_json:
            deliver(assigned.to_csv())
        for target in targets:
            link, clusters = target == link_to, assigned.cluster.tolist()
            n = sort_images(folder, assigned.names, clusters, review.names, target, link=link)
            terminal.say(f"{n:,} {samples.noun} {'linked' if link else 'copied'} to {target}")
        give(
            {
                "run": str(run),
                "source": given,
                "samples": assigned.records(),
                "skipped": dict(samples.skipped),
            }
        )


def _output(out: Path, files: list[str], overwrite: bool) -> Output:
    """Return the file that --out names, checked before any work."""
    if out.suffix.lower() not in (".csv", ".txt", ""):
        raise InputError(f"--out {out} would hold CSV. Name it .csv, or use --json for JSON.")
    return Output(out, overwrite, tuple(Path(file).expanduser() for file in files)).check()


STDIN, LIST = "-", "@"
# A size for the images of a folder; only their paths are used.
SIZE = 96


def read_sources(words: list[str]) -> str | list[str]:
    """Return a single source as it was typed, or else the paths of all image files, each once.

    A word is a file, a folder, a pattern in quotes ("new/**/*.jpg"), @FILE for the paths in a file,
    or - for those on standard input. Paths are relative to the current folder.
    """
    if len(words) == 1 and not _is_list(words[0]) and not _is_pattern(words[0]):
        return words[0]
    return list(dict.fromkeys(path for word in words for path in _paths(word)))


def _is_list(word: str) -> bool:
    return word == STDIN or word.startswith(LIST)


def _is_pattern(word: str) -> bool:
    return glob.has_magic(word) and not os.path.lexists(os.path.expanduser(word))


def _paths(word: str) -> Iterator[str]:
    if _is_list(word):
        yield from _listed(word)
    elif _is_pattern(word):
        found = sorted(glob.glob(os.path.expanduser(word), recursive=True))
        images = [path for path in found if is_image(path) and os.path.isfile(path)]
        if not images:
            raise NoData(
                f"{word} matches {len(found):,} files and folders, none of which is an image. "
                "Check the pattern; ** stands for any folders."
            )
        yield from images
    elif (path := Path(word).expanduser()).is_dir():
        yield from (str(path / name) for name in FolderImages(path, SIZE).paths)
    elif path.exists():
        yield str(path)
    else:
        raise NoData(f"{word} does not exist.{suggest(word)} Give image files, folders, or a list.")


def _listed(word: str) -> list[str]:
    """Return the paths in a list: one per line, or between null bytes as `find -print0` writes."""
    name = "standard input" if word == STDIN else word.removeprefix(LIST)
    with reading(name, "Write a file with one path per line.", NoData, "a list of files"):
        data = sys.stdin.buffer.read() if word == STDIN else read_bytes(Path(name).expanduser())
    parts = data.split(b"\0") if b"\0" in data else data.splitlines()
    paths = [os.fsdecode(part) for part in parts if part.strip()]
    if not paths:
        raise NoData(f"{name} lists no file. Write one path per line.")
    return paths
