"""The options of `probagg cluster`, those that several commands share, and how text is read."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from probagg.app.run.options import Options
from probagg.errors import InputError


def example(command: str, *says: str) -> str:
    """Return the end of a command's help: an example on its own line, and what it does."""
    return f"\b\nExample:\n  {command}\n\n{''.join(says)}"


def option_of(name: str) -> Any:
    """Return the option of the command line for a field of `Options`."""
    spelling = Options.spelling(name)
    return typer.Option(
        *spelling.flags,
        help=spelling.help,
        min=spelling.least,
        autocompletion=(lambda: list(spelling.choices)) if spelling.choices else None,
    )


def takes_options(**before: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command, in place of its `**options`, an option for each field of `Options`.

    `before` names the field that an option of the command itself comes before in its help.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        *own, _ = inspect.signature(command, eval_str=True).parameters.values()
        first, *own = own
        hints, found = get_type_hints(Options), [first]
        for field in fields(Options):
            found += [p for p in own if before.get(p.name) == field.name]
            kind: Any = Options.spelling(field.name).typed or hints[field.name]
            kind = kind | None if field.default is None else kind
            found.append(
                first.replace(
                    name=field.name,
                    default=field.default,
                    annotation=Annotated[kind, option_of(field.name)],
                )
            )
        found += [p for p in own if p.name not in before]
        command.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
        return command

    return add


def read_options(typed: dict[str, Any]) -> Options:
    """Return the options of a command from what was typed."""
    values: dict[str, Any] = {name: None if v == [] else v for name, v in typed.items()}
    values["n_clusters"] = parse_k(values["n_clusters"])
    try:
        values["m"] = values["m"] if values["m"] in (None, "auto") else float(values["m"])
    except ValueError:
        raise InputError(f"--m is {values['m']!r}, but a number or auto is needed.") from None
    return Options(**values)


RunPath = Annotated[Path, typer.Argument(help="A run folder of probagg cluster.")]
Backbone = Annotated[str | None, option_of("backbone")]
Labels = Annotated[Path | None, option_of("labels")]
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
