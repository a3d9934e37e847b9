"""Contact sheets: images in titled groups, and lines of text where there is no image to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from safelight.pictures import grid
from safelight.pictures.grid import CAPTION_SIZE, CELL, GAP, MARGIN, TITLE_SIZE

COLUMNS = 12
MAX_CELL_PIXELS = 128  # pixels of a cell
LINE = CAPTION_SIZE + 6


@dataclass(frozen=True, slots=True)
class Group:
    """Some images under a title, each with a caption; or lines of text."""

    title: str
    images: np.ndarray | None = None
    captions: Sequence[str] = ()
    lines: Sequence[str] = ()


def sheet(groups: Sequence[Group]) -> Image.Image:
    """The groups one below the other."""
    side = max((group.images.shape[1] for group in groups if group.images is not None), default=CELL)
    cell = min(MAX_CELL_PIXELS, max(1, CELL // side) * side)
    width = COLUMNS * (cell + GAP) - GAP
    bodies = [_body(group, width, cell) for group in groups]
    height = MARGIN + sum(TITLE_SIZE + 12 + body.height + MARGIN for body in bodies)
    page = Image.new("RGB", (width + 2 * MARGIN, height), grid.BACKGROUND)
    top = MARGIN
    for group, body in zip(groups, bodies, strict=True):
        grid.draw_title(page, (MARGIN, top - 3), group.title, width)
        page.paste(body, (MARGIN, top + TITLE_SIZE + 8))
        top += TITLE_SIZE + 12 + body.height + MARGIN
    return page


def _body(group: Group, width: int, cell: int) -> Image.Image:
    if group.images is not None:
        return grid.tiles(_at_most(group.images, cell), COLUMNS, group.captions)
    page = Image.new("RGB", (width, max(1, len(group.lines) * LINE)), grid.BACKGROUND)
    draw, face = ImageDraw.Draw(page), grid.font(CAPTION_SIZE)
    for place, text in enumerate(group.lines):
        draw.text((0, place * LINE), grid.shorten(text, face, width), font=face, fill=grid.QUIET_COLOUR)
    return page


def _at_most(images: np.ndarray, cell: int) -> np.ndarray:
    """Large images shrunk to the cell, so that a page of 512 px pictures stays a page."""
    if images.shape[1] <= cell:
        return images
    pictures = map(Image.fromarray, grid.coloured(images))
    return np.stack([np.asarray(picture.resize((cell, cell), reducing_gap=2.0)) for picture in pictures])
