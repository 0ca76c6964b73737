"""Options that several commands share, and how their text is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from probagg.errors import InputError


def example(command: str, *says: str) -> str:
    """Return the end of a command's help: an example on its own line, and what it does."""
    return f"\b\nExample:\n  {command}\n\n{''.join(says)}"


Run = Annotated[Path, typer.Argument(help="A run folder of probagg cluster.")]
RunOrCompact = Annotated[
    Path, typer.Argument(help="A run folder of probagg cluster, or a compact export of one.")
]
Backbone = Annotated[
    str | None,
    typer.Option(
        help="Images: the network whose features are clustered: any timm model, "
        "efficientnet-lite0, an .onnx file, or module:function. NAME,NAME joins two. "
        "[default: vit_small_patch14_dinov2.lvd142m]"
    ),
]
Weights = Annotated[str | None, typer.Option(help="Images: a file of weights for a timm backbone.")]
Labels = Annotated[
    Path | None,
    typer.Option(
        help="Known classes, only to report scores: a CSV of path,class (for rows: row,class), or "
        "the name of a column of a table."
    ),
]
CopyTo = Annotated[
    Path | None, typer.Option(help="Copy the images into one folder per cluster under this one.")
]
LinkTo = Annotated[
    Path | None, typer.Option(help="As --copy-to, but with links instead of copies.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print warnings and errors only.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace what --out names, if it exists.")
]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Allow the run's backbone to be Python code (module:function), which is imported and "
        "run, or a network from a folder or a hub (hf-hub:). Only for runs whose maker you trust.",
    ),
]


def parse_k(text: str | None) -> int | tuple[int, int] | str | None:
    """Return -k as a number, a range A:B, or "auto"."""
    if text is None or text == "auto":
        return text
    low, colon, high = text.partition(":")
    try:
        return (int(low), int(high)) if colon else int(low)
    except ValueError:
        raise InputError(
            f"-k is {text!r}, but a number, a range such as 5:40, or auto is needed."
        ) from None


def parse_number(option: str, text: str | None) -> float | str | None:
    """Return --m or --balance as a number or "auto"."""
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option} is {text!r}, but a number or auto is needed.") from None
