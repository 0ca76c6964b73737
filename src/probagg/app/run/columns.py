"""What becomes of each column of a table: an id, numbers to cluster, or nothing, and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from probagg.data.tables import BOOLEAN, CATEGORY, NUMBER, OTHER, TEXT, Column, Table
from probagg.errors import InputError, NoData, did_you_mean

MOST_CATEGORIES = 20  # different values of a column up to which it is one-hot encoded
MOST_MISSING = 0.5  # of the rows, from which a column is left out
_IDS = re.compile(r"(^|[ _.-])(id|key|uuid|guid|index)$|^(row|name)$|[a-z](ID|Id)$", re.IGNORECASE)


@dataclass(frozen=True)
class Roles:
    """The columns to cluster, the id of each row, and the columns left out with their reasons."""

    id: str | None
    why_id: str
    used: list[Column] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def assign_roles(
    table: Table, id: str | None = None, drop: Sequence[str] = (), classes: str | None = None
) -> Roles:
    """Return what becomes of each column; where none can be used, the error names all of them.

    The cells of the table are read as what they contain (`Table.read`).
    """
    check_names(table, [*([] if id is None else [id]), *drop])
    chosen, why = (id, "as asked") if id is not None else _guess_id(table, {*drop, classes})
    roles = Roles(chosen, why)
    for column in table.columns:
        if column.name == chosen:
            continue
        if column.name == classes:
            roles.left_out[column.name] = "known classes, for comparison only"
        elif column.name in drop:
            roles.left_out[column.name] = "as asked"
        else:
            _assign(column, table, roles)
    if not roles.used:
        raise NoData(
            f"{table.where} has no column that can be clustered: {_listed(roles)}. Numbers, "
            f"dates, true or false, or texts with at most {MOST_CATEGORIES} different values are "
            "needed."
        )
    return roles


def check_names(table: Table, names: Sequence[str]) -> None:
    """Refuse names that are not columns, all at once."""
    unknown = [name for name in names if name not in table.names]
    if unknown:
        raise InputError(
            f"{table.where} has no column {', '.join(map(repr, unknown))}; its columns are "
            f"{', '.join(table.names)}.{did_you_mean(unknown[0], table.names)}"
        )


def _listed(roles: Roles) -> str:
    parts = [f"{name or 'the unnamed column'} ({why})" for name, why in roles.left_out.items()]
    return "; ".join([*([f"{roles.id or 'the unnamed column'} (the id)"] * (roles.id is not None)),
                      *parts])  # fmt: skip


def _assign(column: Column, table: Table, roles: Roles) -> None:
    """Add a column to those used or those left out."""
    missing, n = int(column.is_missing.sum()), len(table)
    if column.kind == OTHER:
        roles.left_out[column.name] = "neither numbers nor text"
    elif missing == n:
        roles.left_out[column.name] = "no values"
    elif missing > MOST_MISSING * n:
        roles.left_out[column.name] = f"{missing / n:.0%} missing"
    elif column.kind in (TEXT, CATEGORY):
        different = len({cell for cell in column.values if cell is not None})
        if different > MOST_CATEGORIES or (column.kind == TEXT and different == n - missing > 2):
            roles.left_out[column.name] = f"text with {different:,} different values"
        elif different == 1 and not missing:
            roles.left_out[column.name] = "constant"
        else:
            roles.used.append(Column(column.name, CATEGORY, column.values))
    else:
        values = column.values[~np.isnan(column.values)]
        if (values == values[0]).all():
            roles.left_out[column.name] = "constant"
        elif column.kind == NUMBER and np.isin(values, (0.0, 1.0)).all():
            roles.used.append(Column(column.name, BOOLEAN, column.values, column.style))
        else:
            roles.used.append(column)


def _guess_id(table: Table, others: set[str | None]) -> tuple[str | None, str]:
    """Return the column that names the rows, and why; None where no column is likely to."""
    free = [column for column in table.columns if column.name not in others]
    for column in free[:1]:
        if table.is_named and column.is_index and _is_unique(column.texts()):
            return column.name, "an index without a name"
    texts = [c for c in free if c.kind == TEXT and _is_unique(c.values)]
    whole = [c for c in free if _IDS.search(c.name) and _is_whole(c)]
    named = [column for column in texts if _IDS.search(column.name)]
    if found := [*named, *whole]:
        return found[0].name, "different in every row"
    return (texts[0].name, "text that differs in every row") if texts else (None, "")


def _is_unique(cells: np.ndarray) -> bool:
    different = set(cells.tolist())
    return len(cells) > 2 and None not in different and len(different) == len(cells)


def _is_whole(column: Column) -> bool:
    """Return whether a column has a different whole number in every row."""
    if column.kind != NUMBER or column.is_missing.any():
        return False
    values = column.values
    return bool((values == np.round(values)).all()) and _is_unique(column.texts())
