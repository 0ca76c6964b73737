"""Values in a review file: clusters, names of clusters and of samples, each checked."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

from probagg.errors import InputError

MAX_NAME = 80  # characters
_HIDDEN = ("Cc", "Cs")  # control characters, and lone surrogates, which no file can hold


class ReviewError(InputError):
    """A review that does not fit its run; the message says what is wrong and what to do."""


def cluster_parser(n_clusters: int, created: Iterable[int] = ()) -> Callable[[Any], int]:
    """Return a function from a number, or a key of JSON, which is text, to one of the clusters."""
    created = tuple(created)
    known = {key: k for k in (*range(n_clusters), *created) for key in (k, str(k))}
    more = f" or of the {len(created)} that the review added" if created else ""

    def parse(value: Any) -> int:
        if type(value) not in (int, str) or value not in known:  # True == 1 and 1.0 == 1
            raise ReviewError(
                f"Cluster {shown(value)} is not one of the run's {n_clusters} clusters, "
                f"0 to {n_clusters - 1}{more}."
            )
        return known[value]

    return parse


def clean_name(name: Any) -> str:
    """Return a name as one line without invisible characters; one that is too long is refused."""
    if not isinstance(name, str):
        raise ReviewError(f"A name must be text, not {shown(name)}.")
    visible = "".join(c for c in " ".join(name.split()) if unicodedata.category(c) not in _HIDDEN)
    if len(visible) > MAX_NAME:
        raise ReviewError(f"A name has {len(visible)} characters; at most {MAX_NAME} are allowed.")
    return visible


def part_of(value: dict[str, Any], name: str, kind: type) -> Any:
    """Return a part of an object of JSON, empty where it is missing; another type is refused."""
    found = value.get(name, kind())
    if not isinstance(found, kind):
        noun = "an object" if kind is dict else "a list"
        raise ReviewError(f'"{name}" must be {noun}, not {shown(found)}.')
    return found


def shown(value: Any) -> str:
    """Return a value for a message, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
