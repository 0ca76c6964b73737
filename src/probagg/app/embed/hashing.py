"""The difference hash of a picture: which places are brighter than the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from probagg.app.embed.backbone import Backbone
from probagg.data.photo import pillow

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 8
BITS = 2 * SIDE * SIDE


def difference_hash(image: Image) -> np.ndarray:
    """Return 128 bits as 0 and 1: in an 8 x 8 grid, is the next place right, and below, brighter?

    They hardly depend on size, compression, brightness and contrast.
    """
    box, grey = pillow().Resampling.BOX, image.convert("L")
    wide = np.asarray(grey.resize((SIDE + 1, SIDE), box), int)
    high = np.asarray(grey.resize((SIDE, SIDE + 1), box), int)
    bits = [wide[:, 1:] > wide[:, :-1], high[1:] > high[:-1]]
    return np.concatenate(bits, axis=None).astype(np.float32)


# As a backbone, so that `embed` reads ahead and caches the hashes by content.
HASHES = Backbone(
    name="difference hash",
    weights=None,
    identity="difference-hash/1",
    transform=difference_hash,
    network=lambda bits: bits,
    n_features=BITS,
    size=SIDE,
    resize=2 * SIDE,
    mean=(0.0, 0.0, 0.0),
    std=(1.0, 1.0, 1.0),
)
