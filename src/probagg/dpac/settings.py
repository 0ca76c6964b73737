"""Frozen dataclasses with some of their keys replaced, types checked and unknown keys refused."""

from __future__ import annotations

import dataclasses
import sys
import tomllib
from typing import Any, get_args, get_origin, get_type_hints

from probagg.errors import InputError, closest, first_line


class RecipeError(InputError):
    """A recipe that cannot be used; the message names the key and what is needed."""


def parse_toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML text."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RecipeError(f"The recipe is not TOML: {first_line(error)}.") from error


def parse_setting(setting: str) -> dict[str, Any]:
    """Return "cluster.m=1.05" as nested values; a bare word is a string, as on a command line.

    >>> parse_setting("cluster.m=1.05"), parse_setting("pretext.task=moco")
    ({'cluster': {'m': 1.05}}, {'pretext': {'task': 'moco'}})
    """
    key, equals, text = setting.partition("=")
    if not equals:
        raise RecipeError(f"{setting!r} is not a setting: write key=value, as cluster.m=1.05.")
    try:
        value: Any = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return value


def merge(values: dict[str, Any], more: dict[str, Any]) -> None:
    """Add nested values in place.

    >>> values = {"cluster": {"m": 1.05}}
    >>> merge(values, {"cluster": {"epochs": 3}, "channels": 1})
    >>> values
    {'cluster': {'m': 1.05, 'epochs': 3}, 'channels': 1}
    """
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            merge(values[key], value)
        else:
            values[key] = value


def replace_all(instance: Any, values: dict[str, Any], prefix: str = "") -> Any:
    """Return the dataclass with nested values replaced, their keys and types checked.

    What the dataclass itself refuses it names by the key alone; the prefix is added here.
    """
    hints = get_type_hints(type(instance))
    changes = {}
    for key, value in values.items():
        if key not in hints:
            meant = closest(key, list(hints))
            hint = (
                f"Did you mean {prefix + meant!r}?"
                if meant
                else f"The keys are {', '.join(hints)}."
            )
            raise RecipeError(f"There is no key {prefix + key!r}. {hint}")
        current = getattr(instance, key)
        if dataclasses.is_dataclass(current):
            if not isinstance(value, dict):
                raise RecipeError(f"{prefix}{key} is {value!r}, but a table of keys is needed.")
            changes[key] = replace_all(current, value, f"{prefix}{key}.")
        else:
            changes[key] = _convert(value, hints[key], prefix + key)
    try:
        return dataclasses.replace(instance, **changes)
    except ValueError as error:
        raise RecipeError(f"{prefix}{error}") from error


def _convert(value: Any, hint: Any, key: str) -> Any:
    """Return the value as the field's type, where the conversion is exact."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and isinstance(value, list | tuple):
        many = len(arguments) == 2 and arguments[1] is Ellipsis
        if many or len(value) == len(arguments):
            inner = [arguments[0]] * len(value) if many else list(arguments)
            return tuple(_convert(v, h, key) for v, h in zip(value, inner, strict=True))
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) <= sys.float_info.max:  # an int may be larger
            return float(value)
    elif hint in (int, str, bool) and type(value) is hint:
        return value
    wanted = str(hint) if origin else hint.__name__
    raise RecipeError(f"{key} is {value!r}, but {wanted} is needed.")
