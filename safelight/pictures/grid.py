"""Pages of sample images: rows of them, stages of denoising, two sets side by side, and pairs."""

from __future__ import annotations

import io
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from safelight.files import DISK, Disk, make_directories, write_atomically

if TYPE_CHECKING:
    import torch

BACKGROUND = (20, 17, 15)
TEXT = (233, 223, 210)
QUIET_COLOUR = (150, 138, 126)
LAMP = (214, 62, 38)
BROKEN = (255, 0, 255)

CELL = 64  # tiny images are enlarged up to this many pixels
GAP = 4
MARGIN = 16
TITLE_SIZE = 14
CAPTION_SIZE = 11
SEAM = 2  # pixels between the two of a pair


def to_uint8(images: torch.Tensor) -> np.ndarray:
    """Floats in [-1, 1] of shape [n, c, h, w] as bytes [n, h, w, c].

    A pixel that is not finite turns magenta; grey images then come back with three channels.
    """
    assert images.shape[1:2] in ((1,), (3,)), f"images of shape {tuple(images.shape)}"
    floats = images.detach().to("cpu").float().permute(0, 2, 3, 1).numpy()
    broken = np.any(~np.isfinite(floats), axis=3)
    rounded = np.rint(np.where(broken[..., None], 0, floats) * np.float32(127.5) + np.float32(127.5))
    pixels = np.clip(rounded, 0, 255).astype(np.uint8)
    if broken.any():
        pixels = coloured(pixels).copy()
        pixels[broken] = BROKEN
    return pixels


def grid(
    images: np.ndarray, *, columns: int | None = None, captions: Sequence[str] | None = None, title: str | None = None
) -> Image.Image:
    """Bytes [n, h, w, 1 or 3] in rows, read like a page; small images are enlarged by whole factors."""
    assert captions is None or len(captions) == len(images), "one caption per image"
    body = tiles(images, columns or pleasant_columns(len(images)), captions)
    page = framed(body, TITLE_SIZE + 10 if title else 0)
    if title:
        draw_title(page, (MARGIN, MARGIN - 3), title, body.width)
    return page


def framed(body: Image.Image, head: int) -> Image.Image:
    """With a margin all round, and `head` pixels more above."""
    page = Image.new("RGB", (body.width + 2 * MARGIN, head + body.height + 2 * MARGIN), BACKGROUND)
    page.paste(body, (MARGIN, head + MARGIN))
    return page


def side_by_side(left: np.ndarray, right: np.ndarray, *, labels: tuple[str, str]) -> Image.Image:
    """Two sets of images under their names, in equal rows, so that one can be held against the other."""
    columns = pleasant_columns(max(len(left), len(right)))
    first, second = grid(left, columns=columns, title=labels[0]), grid(right, columns=columns, title=labels[1])
    width = first.width + second.width - MARGIN // 2
    page = Image.new("RGB", (width, max(first.height, second.height)), BACKGROUND)
    page.paste(first, (0, 0))
    page.paste(second, (width - second.width, 0))
    return page


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


def pairs(samples: np.ndarray, originals: np.ndarray, captions: list[str]) -> Image.Image:
    """`samples`, each above what lies nearest to it among `originals`, uint8 [n, side, side, channels]."""
    assert len(samples) == len(originals) == len(captions), "one original and one caption for each sample"
    above, below = (enlarge(coloured(each)) for each in (samples, originals))
    seam = np.broadcast_to(np.array(BACKGROUND, np.uint8), (len(above), SEAM, above.shape[2], 3))
    stacked = np.concatenate([above, seam, below], axis=1)
    title = "samples, each above the nearest training image"
    return grid(stacked, columns=min(8, len(stacked)), captions=captions, title=title)


def save_png(image: Image.Image, path: Path, disk: Disk = DISK) -> None:
    save_atomically(encode(image, "PNG"), path, disk)


def encode(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def save_atomically(content: bytes, path: Path, disk: Disk = DISK) -> None:
    """Writes the whole file or nothing."""
    make_directories(path.parent, disk)
    write_atomically(path, content, disk)


def pleasant_columns(count: int) -> int:
    """Columns of a page at least as wide as high with the fewest empty places: 64 are 8 x 8, 10 are 5 x 2."""
    root = max(1, math.isqrt(max(0, count - 1)) + 1)
    return min(range(root, 2 * root), key=lambda columns: (-count % columns, columns))


def tiles(images: np.ndarray, columns: int, captions: Sequence[str] | None = None) -> Image.Image:
    """The images alone, with even gaps and captions below them, on a background without a margin."""
    images = enlarge(coloured(images))
    count, height, width, _ = images.shape
    across, down = min(columns, max(1, count)), math.ceil(count / columns)
    pitch = height + GAP + (CAPTION_SIZE + 7 if captions else 0)
    page = Image.new("RGB", (across * (width + GAP) - GAP, max(1, down * pitch - GAP)), BACKGROUND)
    for index, pixels in enumerate(images):
        left, top = index % columns * (width + GAP), index // columns * pitch
        page.paste(Image.fromarray(pixels), (left, top))
        if captions:
            draw_centred(page, (left, top + height + 3), captions[index], width)
    return page


def enlarge(images: np.ndarray) -> np.ndarray:
    """Whole-number enlargement without smoothing, so that every pixel the model made can be seen."""
    factor = max(1, CELL // max(images.shape[1:3]))
    return images.repeat(factor, axis=1).repeat(factor, axis=2)


def draw_title(page: Image.Image, corner: tuple[int, int], title: str, width: int) -> None:
    """A line of text behind a small red lamp."""
    draw = ImageDraw.Draw(page)
    left, top = corner
    draw.rounded_rectangle((left, top + 2, left + 3, top + TITLE_SIZE + 1), radius=1, fill=LAMP)
    type_face = font(TITLE_SIZE)
    draw.text((left + 11, top), shorten(title, type_face, width - 11), font=type_face, fill=TEXT)


def draw_centred(page: Image.Image, corner: tuple[int, int], text: str, width: int) -> None:
    """A caption in the middle of a space `width` wide."""
    type_face = font(CAPTION_SIZE)
    text = shorten(text, type_face, width)
    left = corner[0] + (width - type_face.getlength(text)) / 2
    ImageDraw.Draw(page).text((left, corner[1]), text, font=type_face, fill=QUIET_COLOUR)


def shorten(text: str, type_face: ImageFont.FreeTypeFont, width: float) -> str:
    """The text, or as much of its beginning as fits, with an ellipsis."""
    if type_face.getlength(text) <= width:
        return text
    fitting = bisect_right(range(len(text)), width, key=lambda count: type_face.getlength(text[:count] + "…"))
    return text[: max(0, fitting - 1)].rstrip() + "…"


@cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own type face: no font need be installed."""
    face = ImageFont.load_default(size=size)
    assert isinstance(face, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return face


def coloured(images: np.ndarray) -> np.ndarray:
    """The same bytes [n, h, w, 3], one channel spread over three."""
    assert (images.ndim, images.dtype) == (4, np.uint8), f"{images.dtype} images of shape {images.shape}"
    return np.broadcast_to(images, (*images.shape[:3], 3))


def encode_images(images: np.ndarray) -> Iterator[tuple[str, bytes]]:
    """(name, PNG) each, numbered from 0, at their own size."""
    for index, pixels in enumerate(images):
        yield f"{index:06d}.png", encode(Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels))
