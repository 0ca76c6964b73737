"""probagg predict: the clusters of new samples, from a finished run."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from probagg.cli.errors import guarded
from probagg.cli.opened_run import OpenedRun, check_kind
from probagg.cli.options import AsJson, CopyTo, LinkTo, Quiet, Run
from probagg.cli.samples import is_image_source
from probagg.cli.sorting import check_target, sort_images
from probagg.cli.terminal import Voice, duration
from probagg.runs import write_atomically

EXAMPLE = (
    "Example: probagg predict runs/photos new/ --out new.csv   "
    "One line for each photo, with the columns of assignments.csv."
)


def predict(
    run: Run,
    source: Annotated[str, typer.Argument(help="New images or rows, as for probagg cluster.")],
    out: Annotated[Path | None, typer.Option(help="CSV file. [default: standard output]")] = None,
    copy_to: CopyTo = None,
    link_to: LinkTo = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say to which clusters of a finished RUN new samples belong; nothing is fitted again."""
    voice = Voice(quiet=quiet, aside=out is None or as_json)
    with guarded(voice, as_json=as_json) as give:
        opened = OpenedRun.of(run)
        check_kind(opened, is_image_source(source))
        targets = [target for target in (copy_to, link_to) if target is not None]
        for target in targets:
            check_target(target)
        began = time.perf_counter()
        samples, assigned = opened.assign(source, device=device, loud=not quiet)
        for name, reason in samples.skipped:
            voice.warn(f"{name} is left out: {reason}")
        seconds = duration(time.perf_counter() - began)
        voice.say(f"{source}: {len(samples):,} {samples.noun} in {seconds}")
        sizes = np.bincount(assigned.cluster, minlength=opened.n_clusters).tolist()
        voice.say_sizes(sizes, opened.names)
        table = assigned.to_csv(samples.heading, opened.names)
        if out is not None:
            write_atomically(out, table.encode())
            voice.say(f"written to {out}")
        elif not as_json:
            typer.echo(table, nl=False)
        for target in targets:
            where, link = Path(source).expanduser(), target == link_to
            clusters = assigned.cluster.tolist()
            n = sort_images(where, assigned.names, clusters, opened.names, target, link=link)
            voice.say(f"{n:,} images {'linked' if link else 'copied'} to {target}")
        give({"run": str(run), "source": source, "columns": _plain(asdict(assigned))})


def _plain(columns: dict[str, Any]) -> dict[str, Any]:
    """Lists that JSON can hold: what is not known is null."""
    plain = {}
    for name, column in columns.items():
        values = np.asarray(column).tolist()
        plain[name] = [None if v != v or v == -1 else v for v in values]
    return plain
