"""RAW files as cameras write them: a DNG with a sensor image and a preview."""

import io
import struct

import numpy as np
from PIL import Image

SIDE = 64  # of the sensor
KINDS = {1: "B", 2: "s", 3: "H", 4: "I", 5: "I", 10: "i"}  # of TIFF fields; 5 and 10 are fractions


def jpeg(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def dng(preview=None, *, orientation=1, pixels=None):
    """Return a DNG with a JPEG as its preview, or with `pixels` as a bitmap, or without one."""
    sensor = np.full((SIDE, SIDE), 1000, "<u2").tobytes()
    data = b"" if pixels is None and preview is None else preview or pixels.tobytes()
    raw = 8 + len(directory(_first(preview, pixels, orientation, 0, 0, data), 8))
    sensor_at = raw + len(directory(_sensor(0), raw))
    data_at = sensor_at + len(sensor)
    first = directory(_first(preview, pixels, orientation, raw, data_at, data), 8)
    return b"II*\0\x08\0\0\0" + first + directory(_sensor(sensor_at), raw) + sensor + data


def _sensor(at):
    return {
        254: (4, [0]), 256: (4, [SIDE]), 257: (4, [SIDE]), 258: (3, [16]), 259: (3, [1]),
        262: (3, [32803]), 273: (4, [at]), 277: (3, [1]), 278: (4, [SIDE]),
        279: (4, [2 * SIDE * SIDE]), 33421: (3, [2, 2]), 33422: (1, [0, 1, 1, 2]),
        50717: (4, [4095]),
    }  # fmt: skip


def _first(preview, pixels, orientation, raw, at, data):
    fields = {
        271: (2, b"probagg\0"), 272: (2, b"test\0"), 274: (3, [orientation]), 330: (4, [raw]),
        50706: (1, [1, 4, 0, 0]), 50708: (2, b"probagg test\0"), 50728: (5, [1] * 6),
        50721: (10, [1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1]),
    }  # fmt: skip
    if not data:
        return fields
    width, height = Image.open(io.BytesIO(preview)).size if preview else pixels.shape[1::-1]
    return fields | {
        254: (4, [1]), 256: (4, [width]), 257: (4, [height]), 258: (3, [8, 8, 8]),
        259: (3, [7 if preview else 1]), 262: (3, [6 if preview else 2]), 273: (4, [at]),
        277: (3, [3]), 278: (4, [height]), 279: (4, [len(data)]),
    }  # fmt: skip


def directory(fields, at):
    """Return a TIFF directory that begins at an offset, with the values that do not fit into it."""
    cells, tail = b"", b""
    start = at + 2 + 12 * len(fields) + 4
    for tag, (kind, values) in sorted(fields.items()):
        text = kind == 2
        data = values if text else struct.pack(f"<{len(values)}{KINDS[kind]}", *values)
        n = len(values) // 2 if kind in (5, 10) else len(values)
        cell = data.ljust(4, b"\0")
        if len(data) > 4:
            cell, tail = struct.pack("<I", start + len(tail)), tail + data + b"\0" * (len(data) % 2)
        cells += struct.pack("<HHI", tag, kind, n) + cell
    return struct.pack("<H", len(fields)) + cells + bytes(4) + tail
