"""Owns the time-lapse: the sample pictures of a run as one animation."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageOps

from safelight.errors import CheckpointError
from safelight.files import DISK, MAX_PICTURE_BYTES, Disk, read_plain
from safelight.pictures.grid import (
    BACKGROUND,
    BROKEN,
    CAPTION_SIZE,
    LAMP,
    MARGIN,
    QUIET_COLOUR,
    encode,
    font,
    save_atomically,
)

MOST_FRAMES = 24  # pure noise, the worst case, takes about 150 kB per frame
MOST_PIXELS = 600  # longer side of a frame
COLOURS = 240  # of the pictures; the rest are ink
TRACK = (52, 46, 41)
HOLD = 2.0  # seconds the last frame stays longer
FOOT = CAPTION_SIZE + 14


def timelapse(stages: Sequence[tuple[int, Path]], out: Path, *, seconds: float = 6.0, disk: Disk = DISK) -> None:
    """A GIF over (step, PNG) stages. What cannot be read is skipped; if nothing can, nothing is written."""
    images, size = list[tuple[int, Image.Image]](), None
    for step, path in reversed(_spread(sorted(stages))):
        if (image := _read(path, disk)) is not None:
            size = size or _frame_size(image)  # the last picture sets the size of all
            images.insert(0, (step, ImageOps.pad(image, size, Image.Resampling.BOX, color=BACKGROUND)))
    if not images:
        return
    last_step = images[-1][0]
    palette = _shared_palette([image for _, image in images])
    frames = [
        _with_foot(image, step, last_step).quantize(palette=palette, dither=Image.Dither.NONE) for step, image in images
    ]
    each = max(40, round(seconds * 100 / len(frames)) * 10)  # browsers slow down anything under 20 ms
    durations = [each] * (len(frames) - 1) + [each + round(HOLD * 1000)]
    moving: dict[str, Any] = {"save_all": True, "append_images": frames[1:], "duration": durations, "loop": 0}
    save_atomically(encode(frames[0], "GIF", **moving, optimize=False), out, disk)


def _spread(stages: list[tuple[int, Path]]) -> list[tuple[int, Path]]:
    if len(stages) <= MOST_FRAMES:
        return stages
    return [stages[index] for index in np.linspace(0, len(stages) - 1, MOST_FRAMES).round().astype(int)]


def _read(path: Path, disk: Disk) -> Image.Image | None:
    try:
        with Image.open(io.BytesIO(read_plain(path, MAX_PICTURE_BYTES, disk)), formats=("PNG",)) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError, CheckpointError):  # Pillow's words for missing, damaged and cut short
        return None


def _frame_size(image: Image.Image) -> tuple[int, int]:
    shrink = min(1.0, MOST_PIXELS / max(image.size))
    return max(1, round(image.width * shrink)), max(1, round(image.height * shrink))


def _with_foot(image: Image.Image, step: int, last_step: int) -> Image.Image:
    """The picture over a line with the step and how far along it is."""
    frame = Image.new("RGB", (image.width, image.height + FOOT), BACKGROUND)
    frame.paste(image, (0, 0))
    draw = ImageDraw.Draw(frame)
    face = font(CAPTION_SIZE)
    draw.text((MARGIN, image.height - 3), f"step {step:,}", font=face, fill=QUIET_COLOUR)
    left = MARGIN + int(face.getlength(f"step {last_step:,}")) + 10
    right, middle = image.width - MARGIN, image.height + 3
    if right > left:
        draw.line((left, middle, right, middle), fill=TRACK, width=2)
        reached = left + round((right - left) * step / max(1, last_step))
        draw.line((left, middle, reached, middle), fill=LAMP, width=2)
    return frame


def _shared_palette(images: list[Image.Image]) -> Image.Image:
    """One palette for all frames, so that a colour stays the same colour while the picture develops."""
    # Early noise holds every colour and would use them up; the last picture is seen longest and counts twice.
    last = len(images) - 1
    chosen = [images[index] for index in (last // 2, last * 3 // 4, last, last)]
    mosaic = Image.new("RGB", (256, 256 * len(chosen)))
    for index, image in enumerate(chosen):
        mosaic.paste(image.resize((256, 256), Image.Resampling.NEAREST), (0, 256 * index))
    between = list(zip(BACKGROUND, QUIET_COLOUR, strict=True))
    learnt = mosaic.quantize(COLOURS, Image.Quantize.MEDIANCUT).getpalette() or []
    ink = [round(low + (high - low) * share) for share in np.linspace(0, 1, 8) for low, high in between]
    palette = Image.new("P", (1, 1))
    palette.putpalette([*ink, *LAMP, *TRACK, *BROKEN, *learnt[: 3 * COLOURS]])
    return palette
