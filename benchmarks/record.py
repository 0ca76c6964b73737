"""Results that travel with their circumstances: results/NAME.json."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from probagg.environment import environment
from probagg.storage import write_atomically

HERE = Path(__file__).parent


def commit() -> str:
    """Return the commit of this clone, with "-dirty" where files were changed since."""
    git = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()


def record(name: str, results: Any) -> None:
    """Write the results of one script beside machine, versions and commit."""
    path = HERE / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    content = {"commit": commit(), "env": environment(), "results": results}
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())
    print(f"written to {path}")
