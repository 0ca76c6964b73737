"""Result files, one format for all scripts: benchmarks/results/SCRIPT/SIZE.json.

    results = Results.open("table2", "small")                  # what is recorded, or nothing yet
    results.put(Cell("pendigits", "pac", seed=0).row({"acc": 0.77, "seconds": 0.1}))

README.md describes the format. A row replaces that of the same cell, and the file is written after
each row as a whole or not at all, so that a script that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from probagg.environment import environment
from probagg.storage import write_atomically

RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Cell:
    """What is run: a method on data, with a setting and a seed where there are several."""

    data: str
    method: str
    setting: str = ""
    seed: int | None = 0

    def __str__(self) -> str:
        seed = "" if self.seed is None else f"seed {self.seed}"
        return ", ".join(filter(None, (self.data, self.method, self.setting, seed)))

    def row(self, found: Mapping[str, Any]) -> Row:
        """Return the row of this cell: its values, among them `seconds` and `settings` or not."""
        values = dict(found)
        seconds, settings = values.pop("seconds", None), values.pop("settings", {})
        return Row(**asdict(self), seconds=seconds, values=values, settings=settings)


@dataclass(frozen=True)
class Row(Cell):
    """What a cell gave: values by name, the seconds it took, and the settings it was run with."""

    seconds: float | None = None
    values: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    environment: int = 0  # its place in the environments of the file

    @property
    def cell(self) -> Cell:
        return Cell(self.data, self.method, self.setting, self.seed)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str) -> Any:
        """Return a value, or None where the row has none of this name."""
        return self.values.get(name)


@dataclass
class Results:
    """The content of a result file; `open` reads it, `put` adds rows and writes it."""

    script: str
    size: str = "full"
    settings: dict[str, Any] = field(default_factory=dict)  # of all rows
    notes: list[str] = field(default_factory=list)
    environments: list[dict[str, Any]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    folder: Path = RESULTS

    @classmethod
    def open(cls, script: str, size: str = "full", folder: Path | None = None) -> Results:
        """Return what a script has recorded at a size, or no rows where it has recorded nothing."""
        results = cls(script, size, folder=folder or RESULTS)
        if results.path.is_file():
            content = json.loads(results.path.read_text(encoding="utf-8"))
            content["rows"] = [Row(**row) for row in content["rows"]]
            results = cls(**content, folder=results.folder)
        return results

    @property
    def path(self) -> Path:
        return self.folder / self.script / f"{self.size}.json"

    def of(self, **wanted: Any) -> list[Row]:
        """Return the rows with these fields, such as `data="isolet", method="pac"`."""
        return [row for row in self.rows if wanted.items() <= vars(row).items()]

    def row(self, **wanted: Any) -> Row:
        """Return the one row with these fields."""
        (found,) = self.of(**wanted)
        return found

    def put(self, *rows: Row) -> None:
        """Add rows of this machine in place of those of the same cells, and write the file."""
        number = self._environment()
        new = {row.cell: Row(**vars(row) | {"environment": number}) for row in rows}
        self.rows = [row for row in self.rows if row.cell not in new] + list(new.values())
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, self.text().encode())

    def text(self) -> str:
        """Return the file: JSON with a line for each environment and each row."""
        lines = []
        for each in fields(self)[:-1]:
            value = getattr(self, each.name)
            if each.name in ("environments", "rows"):
                items = (f"  {json.dumps(vars(i) if each.name == 'rows' else i)}" for i in value)
                lines.append(f' "{each.name}": [\n' + ",\n".join(items) + "\n ]")
            else:
                lines.append(f' "{each.name}": {json.dumps(value)}')
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def _environment(self) -> int:
        """Return the place of this machine with its versions, which is added if it is new."""
        here = environment() | {"commit": commit()}
        once = {"command": here["command"], "time": here["time"]}  # of its first row
        for number, known in enumerate(self.environments):
            if known | once == here:
                return number
        self.environments.append(here)
        return len(self.environments) - 1


def record(
    script: str, rows: Iterable[Row], size: str = "full", settings: Mapping[str, Any] | None = None
) -> None:
    """Write the result file of a script that runs as a whole."""
    results = Results(script, size, dict(settings or {}))
    results.put(*rows)
    print(f"written to {results.path}")


def commit() -> str:
    """Return the commit of this clone, with "-dirty" where files were changed since."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
