"""Read the paper's numbers, as printed: expected("table2", "pendigits", "pac", "acc").

The order of the keys is table, data set, method, setting (Tables 5c, 6 and 7) and metric; Table 1
has no method. Fewer keys return all that is below them. Names are those of `expected.toml`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PAPER = Path(__file__).with_suffix(".toml")


class NotPrintedError(KeyError):
    """The paper has no such number; the message names those that it has."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the repr


@dataclass(frozen=True)
class Misprint:
    """A number of the paper that cannot be right, or not where it is."""

    sign: str  # how it shows; expected.toml lists the signs
    cells: tuple[str, ...]  # paths of keys, such as "table5a/cifar10/dpac-opa/acc"
    why: str
    meant: float | None = None  # where only one number can be meant


@cache
def printed() -> dict[str, Any]:
    """Return the whole of expected.toml."""
    return tomllib.loads(PAPER.read_text(encoding="utf-8"))


def expected(*keys: str) -> Any:
    """Return the number at the keys, or the dictionary of all numbers below them."""
    value: Any = printed()
    for depth, key in enumerate(keys):
        if not isinstance(value, dict) or key not in value:
            raise NotPrintedError(_message(keys[:depth], key, value))
        value = value[key]
    return value


def _message(path: tuple[str, ...], key: str, value: Any) -> str:
    """Return what was asked for and what is there instead."""
    where = "/".join(path) or PAPER.name
    if not isinstance(value, dict):
        return f"{where} is the number {value}: leave out the key {key!r}."
    if not value:
        return f"{where} has no {key!r}: the paper prints N/A or a dash there. Skip this cell."
    return f"{where} has no {key!r}. Available: {', '.join(value)}."


def misprints() -> list[Misprint]:
    """Return the known misprints of the paper."""
    return [
        Misprint(**{**entry, "cells": tuple(entry["cells"])}) for entry in printed()["misprints"]
    ]


def misprint(*keys: str) -> Misprint | None:
    """Return the misprint that affects the number at the keys, or None."""
    path = "/".join(keys) + "/"
    marked = (entry for entry in misprints() for cell in entry.cells if path.startswith(f"{cell}/"))
    return next(marked, None)
