"""Owns the picture of denoising: each row one image, each column one stage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from safelight.pictures.grid import CAPTION_SIZE, GAP, MARGIN, draw_centred, framed, tiles


def strip(frames: np.ndarray, *, captions: Sequence[str]) -> Image.Image:
    """Bytes [stages, images, h, w, 1 or 3] developing from left to right, under captions such as t = 999."""
    stages, count = frames.shape[:2]
    assert len(captions) == stages, f"{len(captions)} captions for {stages} stages"
    body = tiles(frames.swapaxes(0, 1).reshape(stages * count, *frames.shape[2:]), columns=stages)
    page = framed(body, CAPTION_SIZE + 6)
    width = (body.width + GAP) // stages - GAP
    for stage, caption in enumerate(captions):
        draw_centred(page, (MARGIN + stage * (width + GAP), MARGIN - 2), caption, width)
    return page
