"""Broken versions of a good file: of its bytes, and of its values where it is JSON or TOML."""

import copy
import io
import json
import tomllib
import zipfile

import tomli_w

from probagg.storage import SEAL, _digest, _split, seal

NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 2**63 - 1, 2**64 - 1)
TOKENS = (
    "nan", "inf", "-1", "1e999", "1e-320", "0x10", "9" * 400, "1_0", "", "\0", '"', "'", ",", ";",
    "\t", "\n", "\r", "[" * 3000, '{"a":' * 3000, "]", "}", "=", "#", "\ufeff", "\ud800", "²", "٣",
    "true", "null", "None", "0001-01-01", "9999-12-31T23:59:59", "../x", "/dev/zero", "%s",
)  # fmt: skip
VALUES = (
    None, True, False, 0, -1, 1, 3, 2**31, 2**63, -(2**70), 10**400, 0.0, -1.5, 1e300, 5e-324,
    float("inf"), float("nan"), "", "x", "nan", "../x", "9" * 400, "\0", [], [[]], {}, [1, "a"],
    {"a": 1}, "mlp", "dpac", "pac", "images", "matrix",
)  # fmt: skip


def mutate(data, rng, others):
    """Return the bytes of a file with one to four changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(CHANGES)(data, rng, others)
    return data


def flip(data, rng, _):
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8)) if found else 0):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def truncate(data, rng, _):
    return data[: rng.randrange(len(data) + 1)]


def remove(data, rng, _):
    start, stop = _piece(data, rng)
    return data[:start] + data[stop:]


def repeat(data, rng, _):
    start, stop = _piece(data, rng)
    return data[:stop] + data[start:stop] * rng.choice((1, 2, 30)) + data[stop:]


def splice(data, rng, others):
    other = rng.choice(others)
    start, stop = _piece(other, rng)
    return data[: _piece(data, rng)[0]] + other[start:stop] + data[_piece(data, rng)[1] :]


def overwrite(data, rng, _):
    size, order = rng.choice((1, 2, 4, 8)), rng.choice(("little", "big"))
    number = (rng.choice(NUMBERS) % 256**size).to_bytes(size, order)
    place = rng.randrange(len(data) + 1)
    return data[:place] + number + data[place + size :]


def insert(data, rng, _):
    place, token = rng.randrange(len(data) + 1), rng.choice(TOKENS)
    return data[:place] + token.encode("utf-8", "surrogatepass") + data[place:]


def replace_cell(data, rng, _):
    """Put a token in the place of what is between two separators."""
    marks = [0, *(i for i, byte in enumerate(data) if byte in b",;\t\n=: ")][:5000]
    start = rng.choice(marks)
    stop = min((i for i in marks if i > start), default=len(data))
    token = rng.choice(TOKENS).encode("utf-8", "surrogatepass")
    return data[: start + 1] + token + data[stop:]


CHANGES = (flip, truncate, remove, repeat, splice, overwrite, insert, replace_cell)


def _piece(data, rng):
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 4, 16, 200)))


def mutate_values(data, name, rng):
    """Return a JSON, TOML or safetensors file with other values, with a valid checksum or not."""
    if name.endswith(".safetensors"):
        return _mutate_header(data, rng)
    if name.endswith(".npz"):
        return _mutate_entry(data, rng)
    is_toml = name.endswith(".toml")
    value = tomllib.loads(data.decode()) if is_toml else json.loads(data)
    value = _changed(value, rng)
    try:
        if is_toml:
            return tomli_w.dumps(value).encode()
        if rng.random() < 0.7 and isinstance(value, dict) and SEAL in value:
            value.pop(SEAL)
            value = seal(value)
        return json.dumps(value).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return data[:-1]  # TOML has no such value


def _mutate_header(data, rng):
    header, tensors = _split(data)
    metadata, tensors = header.get("__metadata__", {}), bytearray(tensors)
    if rng.random() < 0.6 and "description" in metadata:
        description = json.loads(metadata["description"])
        if "recipe" in description and rng.random() < 0.7:  # a recipe within
            recipe = mutate_values(description["recipe"].encode(), "recipe.toml", rng)
            description["recipe"] = recipe.decode("utf-8", "replace")
        else:
            description = _changed(description, rng)
        metadata["description"] = json.dumps(description)
    elif rng.random() < 0.5:
        header = _changed(header, rng)
    elif tensors:
        for _ in range(8):
            tensors[rng.randrange(len(tensors))] = rng.choice((0, 0x7F, 0xFF, rng.randrange(256)))
    if rng.random() < 0.8 and isinstance(header, dict):
        metadata = header.get("__metadata__", {})
        if isinstance(metadata, dict):
            metadata.pop(SEAL, None)
            metadata[SEAL] = _digest(header, bytes(tensors))
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + bytes(tensors)


def _mutate_entry(data, rng):
    """Return an archive with one of its files changed, which keeps the checksums of ZIP valid."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        chosen = rng.choice(old.namelist())
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, mutate(content, rng, [content]) if name == chosen else content)
    return made.getvalue()


def _changed(value, rng):
    """Return plain data with another value somewhere, or without it, or with it elsewhere."""
    value = json.loads(json.dumps(value, default=str))
    for _ in range(rng.choice((1, 1, 2))):
        places = list(_places(value))
        if not places:
            return _value(rng)
        holder, key = rng.choice(places)
        kind = rng.random()
        if kind < 0.55:
            holder[key] = _value(rng)
        elif kind < 0.7:
            del holder[key]
        elif kind < 0.85:
            other, where = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[where])) if _has(other, where) else None
        elif isinstance(holder, dict):
            holder[rng.choice(("", "x", "base", "__metadata__", "embed"))] = _value(rng)
        else:
            holder.extend([holder[key]] * 3)
    return value


def _value(rng):
    return copy.deepcopy(rng.choice(VALUES))


def _has(holder, key):
    return key in holder if isinstance(holder, dict) else key < len(holder)


def _places(value):
    """Yield every container of plain data with each of its keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items) if isinstance(value, dict | list) else ():
        yield value, key
        yield from _places(inner) if isinstance(inner, dict | list) else ()
