"""Pairs of pictures that may be copies of each other, one above the other."""

from __future__ import annotations

import numpy as np
from PIL import Image

from safelight.pictures.grid import BACKGROUND, coloured, enlarge, grid

SEAM = 2  # pixels between the two


def pairs(samples: np.ndarray, originals: np.ndarray, captions: list[str]) -> Image.Image:
    """`samples` and what lies nearest to each among `originals`, uint8 [n, side, side, channels], most alike first."""
    assert len(samples) == len(originals) == len(captions), "one original and one caption for each sample"
    above, below = (enlarge(coloured(each)) for each in (samples, originals))
    seam = np.broadcast_to(np.array(BACKGROUND, np.uint8), (len(above), SEAM, above.shape[2], 3))
    tiles = np.concatenate([above, seam, below], axis=1)
    title = "samples, each above the nearest training image"
    return grid(tiles, columns=min(8, len(tiles)), captions=captions, title=title)
