"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def example(command: str, *says: str) -> str:
    """The end of a command's help: an example on its own line, and what it does."""
    return f"\b\nExample:\n  {command}\n\n{''.join(says)}"


Run = Annotated[Path, typer.Argument(help="A run folder of probagg cluster.")]
RunOrCompact = Annotated[
    Path, typer.Argument(help="A run folder of probagg cluster, or a compact export of one.")
]
Backbone = Annotated[
    str | None,
    typer.Option(
        help="Of images: whose features. Any timm model, efficientnet-lite0, a model.onnx, or "
        "module:function. [default: vit_small_patch14_dinov2.lvd142m]"
    ),
]
Weights = Annotated[str | None, typer.Option(help="Of images: a file for a timm backbone.")]
Labels = Annotated[
    Path | None,
    typer.Option(help="CSV of path,class (rows: row,class) to report against; never used else."),
]
CopyTo = Annotated[
    Path | None, typer.Option(help="Copy the images into one folder a cluster under this one.")
]
LinkTo = Annotated[Path | None, typer.Option(help="The same with links in place of copies.")]
AsJson = Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print warnings and errors only.")]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Allow the run's backbone to be Python code (module:function), which is imported and "
        "run. Only for runs whose maker you trust.",
    ),
]
