"""The scikit-learn transformers of a table, and what they learned as plain numbers per column."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from probagg.data.tables import BOOLEAN, CATEGORY, DATE, NUMBER, Column

NO_CATEGORY = -1.0  # the code of a missing or unseen category: a row of zeros


@dataclass(frozen=True)
class Part:
    """A column that is clustered, and the numbers that prepare it."""

    name: str
    place: int  # in the table
    kind: str
    style: str = ""  # how its numbers or dates were written
    missing: int = 0  # values
    unreadable: int = 0  # of these, texts among numbers
    fill: float = 0.0  # for missing values; dates are days since 1970
    center: float = 0.0
    scale: float = 1.0
    categories: list[str] = field(default_factory=list)

    def check(self, n_columns: int) -> None:
        """Raise an error where a part that was read from a file cannot be of a table."""
        texts = (self.name, self.kind, self.style, *self.categories)
        counts = (self.place, self.missing, self.unreadable)
        amounts = (self.fill, self.center, self.scale)
        if (
            not all(isinstance(text, str) for text in texts)
            or not all(type(count) is int for count in counts)
            or not all(type(a) in (int, float) and math.isfinite(a) for a in amounts)
            or self.kind not in (NUMBER, DATE, BOOLEAN, CATEGORY)
            or not 0 <= self.place < n_columns
            or self.scale == 0.0
        ):
            raise ValueError(f"its column {self.name!r:.40} cannot be of a table")

    @property
    def outputs(self) -> list[str]:
        """The names of the numbers that it becomes."""
        if self.kind != CATEGORY:
            return [self.name]
        return [f"{self.name} = {category}" for category in self.categories]

    def codes(self, column: Column) -> np.ndarray:
        """Return the cells as numbers, with NaN for missing ones, or codes of categories."""
        if self.kind != CATEGORY:
            return column.values
        code = {category: float(k) for k, category in enumerate(self.categories)}
        return np.array([code.get(cell, NO_CATEGORY) for cell in column.values], float)


def groups(parts: list[Part]) -> tuple[list[Part], list[Part], list[Part]]:
    """Return amounts, booleans and categories, which are transformed together."""
    return (
        [part for part in parts if part.kind in (NUMBER, DATE)],
        [part for part in parts if part.kind == BOOLEAN],
        [part for part in parts if part.kind == CATEGORY],
    )


def new_transformer(parts: list[Part], scaling: str) -> Any:
    """Return the transformer of the parts' columns of M, not fitted."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder, RobustScaler, StandardScaler

    scalers = {"standard": StandardScaler, "robust": RobustScaler}
    scaler = scalers[scaling]() if scaling in scalers else "passthrough"
    steps = [("fill", SimpleImputer(strategy="median")), ("scale", scaler)]
    amounts, flags, categories = groups(parts)
    codes = [np.arange(float(len(part.categories))) for part in categories]
    encoder = OneHotEncoder(categories=codes, handle_unknown="ignore", sparse_output=False)
    steps_of = [
        ("amounts", Pipeline(steps), amounts),
        ("booleans", SimpleImputer(strategy="most_frequent"), flags),
        ("categories", encoder, categories),
    ]
    return ColumnTransformer(
        [(n, t, [parts.index(p) for p in group]) for n, t, group in steps_of if group]
    )


def learned(parts: list[Part], scaling: str, transformer: Any) -> list[Part]:
    """Return the parts with what the transformers learned."""
    found: dict[str, Part] = {}
    amounts, flags, _ = groups(parts)
    if amounts:
        steps = transformer.named_transformers_["amounts"].named_steps
        n, scaler = len(amounts), steps["scale"]
        centers, scales = np.zeros(n), np.ones(n)
        if scaling == "standard":
            centers, scales = scaler.mean_, scaler.scale_
        elif scaling == "robust":
            centers, scales = scaler.center_, scaler.scale_
        for j, part in enumerate(amounts):
            found[part.name] = replace(
                part,
                fill=float(steps["fill"].statistics_[j]),
                center=float(centers[j]),
                scale=float(scales[j]),
            )
    if flags:
        fills = transformer.named_transformers_["booleans"].statistics_
        found |= {p.name: replace(p, fill=float(f)) for p, f in zip(flags, fills, strict=True)}
    return [found.get(part.name, part) for part in parts]


def rebuild(parts: list[Part], scaling: str) -> Any:
    """Return the fitted transformer, from what it learned.

    Imputers and the encoder learn their parameters again from one row that holds them.
    """
    row = np.array([[0.0 if part.kind == CATEGORY else part.fill for part in parts]])
    transformer = new_transformer(parts, scaling).fit(row)
    amounts = groups(parts)[0]
    if amounts and scaling != "none":
        scaler = transformer.named_transformers_["amounts"].named_steps["scale"]
        centers = np.array([part.center for part in amounts])
        setattr(scaler, "mean_" if scaling == "standard" else "center_", centers)
        scaler.scale_ = np.array([part.scale for part in amounts])
    return transformer
