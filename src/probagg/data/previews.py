"""The preview that a camera embeds in a RAW file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO

import numpy as np

from probagg.errors import import_optional

_QUARTER_TURNS = {3: 2, 5: 1, 6: 3}  # LibRaw's flip: half a turn, left, right


def open_preview(path: Path) -> IO[bytes]:
    """Return the largest preview of a RAW file as an image file; it is not developed.

    LibRaw writes the orientation into a JPEG without EXIF; a bitmap is turned here.
    """
    rawpy = import_optional("rawpy", "Reading RAW files", "raw")
    with path.open("rb") as file, rawpy.imread(file) as raw:
        try:
            preview = raw.extract_thumb()
        except (rawpy.LibRawNoThumbnailError, rawpy.LibRawUnsupportedThumbnailError):
            raise ValueError("it has no preview that can be read: convert it to JPEG") from None
        if preview.format == rawpy.ThumbFormat.JPEG:
            return io.BytesIO(preview.data)
        pixels = np.rot90(preview.data, _QUARTER_TURNS.get(raw.sizes.flip, 0))
        return _as_ppm(np.ascontiguousarray(pixels))


def _as_ppm(pixels: np.ndarray) -> IO[bytes]:
    height, width = pixels.shape[:2]
    return io.BytesIO(b"P6 %d %d 255\n" % (width, height) + pixels.tobytes())
