"""The metrics of a training run: metrics.jsonl, and TensorBoard where it is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from probagg.progress import logger
from probagg.storage import write_atomically


class History:
    """Write records of a run, one JSON object per line; `out=None` only logs them."""

    def __init__(self, out: Path | None) -> None:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        self._path = out / "metrics.jsonl" if out else None
        self._board = _board(out) if out else None

    def add(self, record: dict[str, Any]) -> None:
        """Append one record."""
        logger.info("%s", record)
        if self._path is None:
            return
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        if self._board is not None:
            for name, value in record.items():
                if isinstance(value, float):
                    self._board.add_scalar(f"{record['stage']}/{name}", value, record["step"])
            self._board.flush()

    def close(self) -> None:
        """Finish the files of TensorBoard."""
        if self._board is not None:
            self._board.close()

    def trim(self, done: list[str], stage: str, epoch: int) -> None:
        """Keep records of done stages and of `stage` up to `epoch`; the rest is trained again."""
        if self._path is None or not self._path.exists():
            return
        kept = []
        for line in _lines(self._path):
            try:
                record = json.loads(line)
                current = record["stage"] == stage and record["epoch"] <= epoch
                if record["stage"] in done or current:
                    kept.append(line)
            except (ValueError, LookupError, TypeError, RecursionError):
                continue  # a damaged line is of no use to anybody, and curves do without it
        write_atomically(self._path, "".join(kept).encode())


def _lines(path: Path) -> list[str]:
    """Return complete lines: a killed process may have left half of one."""
    return [
        line
        for line in path.read_text(errors="replace").splitlines(keepends=True)
        if line.endswith("}\n")
    ]


def _board(out: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(out / "tensorboard"))
