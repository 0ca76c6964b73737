"""Run a script of the benchmarks by its name: python -m benchmarks table2 --size small."""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import study
from probagg.errors import did_you_mean

FOLDERS = {
    "paper": "Tables and figures of the paper",
    "speed": "Time and memory",
    "studies": "Studies of our own",
    "figures": "Pictures and tables of the documentation",
}
EXAMPLE = """example:
  python -m benchmarks table2 --size small --seeds 3

Run this in the repository, with PROBAGG_DATA naming the folder of the data (docs/reproduce.md).
Rows are printed, and written to benchmarks/results/table2/small.json. NAME --help shows the
options of a script.
"""
SCRIPT = re.compile(r"^(def main\(|STUDY = )", re.M)


def scripts() -> dict[str, Path]:
    """Return the files that can be run, by name: they have a function `main` or a `STUDY`."""
    here = Path(__file__).parent
    paths = (path for folder in FOLDERS for path in sorted((here / folder).glob("*.py")))
    return {path.stem: path for path in paths if SCRIPT.search(path.read_text(encoding="utf-8"))}


def summary(path: Path) -> str:
    """Return the first line of a script's docstring; the script is not imported."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def listed() -> Iterator[str]:
    """Yield a line for each folder and for each of its scripts."""
    found = scripts()
    width = max(map(len, found))
    for folder, title in FOLDERS.items():
        yield f"{title} (benchmarks/{folder}):"
        for name, path in found.items():
            if path.parent.name == folder:
                yield f"  {name:{width}}  {summary(path)}"


def main() -> None:
    """Run the script that the first argument names, with the other arguments."""
    found = scripts()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        usage="python -m benchmarks NAME [options of the script]",
        description="Run a script of the benchmarks.",
        epilog="\n".join((EXAMPLE, *listed())),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="a script, listed below")
    name = parser.parse_args(sys.argv[1:2]).name
    if name is None:
        parser.print_help()
        return
    if name not in found:
        hint = did_you_mean(name, tuple(found))
        parser.error(f"there is no script {name!r}.{hint} python -m benchmarks lists all.")
    sys.argv = [f"python -m benchmarks {name}", *sys.argv[2:]]
    script = importlib.import_module(f"benchmarks.{found[name].parent.name}.{name}")
    if hasattr(script, "STUDY"):
        study.main(script.STUDY)
    else:
        script.main()


if __name__ == "__main__":
    main()
