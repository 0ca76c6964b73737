"""Hypothesis strategies for damaged files: of their bytes, and of their values where they are data.

A change takes `draw` and the bytes of a good file. What hypothesis draws are places and values, so
that a failing input shrinks to the one byte or value that matters.
"""

import io
import json
import tomllib
import zipfile

import tomli_w
from hypothesis import strategies as st

from probagg.storage import CHECKSUM, _digest, _split

DATA = (".json", ".toml", ".safetensors", ".npz")  # files whose values are changed too
NUMBERS = st.sampled_from([0, 1, 0x7F, 0x80, 0xFFFF, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1])
TOKENS = st.text(max_size=4) | st.sampled_from(
    ["nan", "inf", "-1", "1e999", "1e-320", "0x10", "9" * 400, "1_0", "\0", '"', ",", ";", "\t",
     "\n", "\r", "[" * 3000, '{"a":' * 3000, "]", "}", "=", "#", "\ufeff", "\ud800", "²", "٣",
     "true", "null", "None", "0001-01-01", "9999-12-31T23:59:59", "../x", "/dev/zero", "%s"]
)  # fmt: skip
WORDS = st.text(max_size=4) | st.sampled_from(
    ["nan", "../x", "9" * 400, "mlp", "dpac", "pac", "images", "base", "__metadata__", "embed"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS
SCALARS |= st.sampled_from([2**31, 2**63, -(2**70), 10**400, 1e300, 5e-324])
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(WORDS, v, max_size=3), max_leaves=4
)


@st.composite
def damaged(draw, files):
    """Draw the name of one of the good files and its bytes, damaged."""
    name = draw(st.sampled_from(sorted(files)))
    if name.endswith(DATA) and draw(st.booleans()):
        return name, _other_values(draw, name, files[name])
    return name, _other_bytes(draw, files[name], list(files.values()))


def _other_bytes(draw, data, others):
    for _ in range(draw(st.integers(1, 4))):
        data = draw(st.sampled_from(CHANGES))(draw, data, others)
    return data


def _flip(draw, data, _):
    found = bytearray(data)
    for _ in range(draw(st.integers(1, 8)) if found else 0):
        found[draw(st.integers(0, len(found) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(found)


def _truncate(draw, data, _):
    return data[: _place(draw, data)]


def _remove(draw, data, _):
    start, stop = _piece(draw, data)
    return data[:start] + data[stop:]


def _repeat(draw, data, _):
    start, stop = _piece(draw, data)
    return data[:stop] + data[start:stop] * draw(st.sampled_from([1, 2, 30])) + data[stop:]


def _splice(draw, data, others):
    other = draw(st.sampled_from(others))
    start, stop = _piece(draw, other)
    return data[: _place(draw, data)] + other[start:stop] + data[_place(draw, data) :]


def _overwrite(draw, data, _):
    size, order = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from(["little", "big"]))
    number = (draw(NUMBERS) % 256**size).to_bytes(size, order)
    place = _place(draw, data)
    return data[:place] + number + data[place + size :]


def _insert(draw, data, _):
    place = _place(draw, data)
    return data[:place] + draw(TOKENS).encode("utf-8", "surrogatepass") + data[place:]


def _replace_cell(draw, data, _):
    """Put a token in the place of what is between two separators."""
    marks = [0, *(i for i, byte in enumerate(data) if byte in b",;\t\n=: ")][:5000]
    number = draw(st.integers(0, len(marks) - 1))
    stop = marks[number + 1] if number + 1 < len(marks) else len(data)
    return data[: marks[number] + 1] + draw(TOKENS).encode("utf-8", "surrogatepass") + data[stop:]


CHANGES = (_flip, _truncate, _remove, _repeat, _splice, _overwrite, _insert, _replace_cell)


def _place(draw, data):
    return draw(st.integers(0, len(data)))


def _piece(draw, data):
    start = _place(draw, data)
    return start, min(len(data), start + draw(st.sampled_from([1, 4, 16, 200])))


def _other_values(draw, name, data):
    """Return a JSON, TOML, safetensors or npz file with other values, perhaps sealed again."""
    if name.endswith(".safetensors"):
        return _other_header(draw, data)
    if name.endswith(".npz"):
        return _other_entry(draw, data)
    if name.endswith(".toml"):
        try:
            return tomli_w.dumps(_changed(draw, tomllib.loads(data.decode()))).encode()
        except (TypeError, ValueError, AttributeError):  # TOML has no such value
            return data[:-1]
    return json.dumps(_changed(draw, json.loads(data))).encode("utf-8", "surrogatepass")


def _other_header(draw, data):
    header, tensors = _split(data)
    metadata, tensors = header.get("__metadata__", {}), bytearray(tensors)
    part = draw(st.sampled_from(["recipe", "description", "header", "tensors"]))
    description = json.loads(metadata.get("description", "{}"))
    if part == "recipe" and "recipe" in description:
        recipe = _other_values(draw, "recipe.toml", description["recipe"].encode())
        metadata["description"] = json.dumps(
            description | {"recipe": recipe.decode("utf-8", "replace")}
        )
    elif part in ("recipe", "description"):
        metadata["description"] = json.dumps(_changed(draw, description))
    elif part == "header":
        header = _changed(draw, header)
    elif tensors:
        for _ in range(draw(st.integers(1, 8))):
            tensors[draw(st.integers(0, len(tensors) - 1))] = draw(st.integers(0, 255))
    metadata = header.get("__metadata__", {}) if isinstance(header, dict) else None
    if isinstance(metadata, dict) and draw(st.integers(0, 4)):
        metadata.pop(CHECKSUM, None)
        metadata[CHECKSUM] = _digest(header, bytes(tensors))
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + bytes(tensors)


def _other_entry(draw, data):
    """Return an archive with one of its files changed, which keeps the checksums of ZIP valid."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        chosen = draw(st.sampled_from(old.namelist()))
        for name in old.namelist():
            content = old.read(name)
            is_chosen = name == chosen
            new.writestr(name, _other_bytes(draw, content, [content]) if is_chosen else content)
    return made.getvalue()


def _changed(draw, value):
    """Return plain data with another value somewhere, or without it, or with one more."""
    value = json.loads(json.dumps(value, default=str))
    for _ in range(draw(st.integers(1, 2))):
        places = list(_places(value))
        if not places:
            return draw(VALUES)
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        change = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if change == "replace":
            holder[key] = draw(VALUES)
        elif change == "remove":
            del holder[key]
        elif isinstance(holder, dict):
            holder[draw(WORDS)] = draw(VALUES)
        else:
            holder.extend([holder[key]] * 3)
    return value


def _places(value):
    """Yield every container of plain data with each of its keys."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)
