"""The scripts of a clone: the paper's tables and figures, speed, and studies of our own."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from probagg.data.benchmarks import ALL_NAMES
from probagg.errors import NoData, did_you_mean
from probagg.processes import on_signals

FOLDERS = {  # of benchmarks/
    "paper": "Tables and figures of the paper",
    "speed": "Time and memory",
    "studies": "Studies of our own",
}
MARK = Path("benchmarks", "paper", "expected.toml")  # a folder with this file is a clone
NO_CLONE = (
    "The scripts of the paper's tables and the other benchmarks are in the repository of probagg, "
    'not in the installed package: in the folder of a clone, pip install -e ".[bench]", and then '
    "probagg bench {}."
)


@dataclass(frozen=True)
class Script:
    """A file in a folder of benchmarks/ that can be run."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    def summary(self) -> str:
        """Return the first line of the script's docstring; nothing of it is imported."""
        text = ast.get_docstring(ast.parse(self.path.read_text(encoding="utf-8"))) or ""
        return text.partition("\n")[0]

    def run(self, arguments: Sequence[str]) -> int:
        """Run the script with this interpreter; return its exit code.

        Modules are found in benchmarks/ and not in the current folder (-P), where others may have
        the same name.
        """
        module = f"{self.path.parent.name}.{self.name}"
        folders = [str(self.path.parents[1]), os.environ.get("PYTHONPATH", "")]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
        command = [sys.executable, "-P", "-m", module, *arguments]
        with subprocess.Popen(command, env=env) as child, on_signals(partial(_pass_on, child)):
            code = child.wait()
        return code if code >= 0 else 128 - code  # as a shell does for a signal


def _pass_on(child: subprocess.Popen[bytes], number: int, frame: FrameType | None) -> None:
    """Send a signal to the script; a terminal sends Ctrl-C to both by itself."""
    if number != signal.SIGINT:
        child.send_signal(number)


def names_script(word: str) -> bool:
    """Return whether a word is a script, or one word that is not data and so can only be one."""
    if word in scripts():
        return True
    return word.isidentifier() and word not in ALL_NAMES and not Path(word).exists()


def find(name: str) -> Script:
    """Return the script of a name, or raise what to do instead."""
    found = scripts()
    if name in found:
        return found[name]
    what = f"{name!r} is not a file, a folder or a known data set"
    if not found:
        raise NoData(f"{what}. {NO_CLONE.format(name)}")
    hint = did_you_mean(name, (*found, *ALL_NAMES))
    raise NoData(f"{what}, nor a script of {clone()}: probagg bench --list shows these.{hint}")


def scripts() -> dict[str, Script]:
    """Return all scripts by name; none outside of a clone."""
    root = clone()
    if root is None:
        return {}
    paths = (p for folder in FOLDERS for p in sorted((root / "benchmarks" / folder).glob("*.py")))
    return {p.stem: Script(p) for p in paths if "__main__" in p.read_text(encoding="utf-8")}


def listed() -> Iterator[str]:
    """Yield the lines of `probagg bench --list`."""
    found = scripts()
    if not found:
        raise NoData(f"There are no scripts here. {NO_CLONE.format('--list')}")
    width = max(map(len, found))
    for folder, title in FOLDERS.items():
        yield f"{title} (benchmarks/{folder}):"
        for script in found.values():
            if script.path.parent.name == folder:
                yield f"  {script.name:{width}}  {script.summary()}"


def clone() -> Path | None:
    """Return the clone that this package is in, or that the current folder is in, or None."""
    for start in _starts():
        for folder in (start, *start.parents):
            if (folder / MARK).is_file():
                return folder
    return None


def _starts() -> Iterator[Path]:
    yield Path(__file__).resolve().parent
    with suppress(FileNotFoundError):  # a current folder that was deleted
        yield Path.cwd()
