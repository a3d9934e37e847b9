"""Pictures small enough for one file: a choice of stages, and each as WebP where that is smaller."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safelight.files import MAX_PICTURE_BYTES, read_plain
from safelight.pages.data.gallery import TYPES

STAGES = {
    "samples": 50,
    "raw_and_averaged": 12,
    "denoising": 12,
    "closest": 8,
    "refused batches": 8,
    "contact_sheet": 1,
    "timelapse": 1,
}
OTHER = 4  # pictures of any other kind
LEVELS = {1600: 88, 1200: 82, 900: 76, 640: 70, 480: 60, 320: 50, 160: 40}  # longest side, quality of WebP
MAX_TIMELAPSE_BYTES = 600_000  # bytes of a timelapse; the slider shows the same
MAX_UNCHANGED_BYTES = 40_000  # bytes of a file that is not worth the work


def choose(pictures: Sequence[dict[str, Any]], share: float = 1.0) -> list[dict[str, Any]]:
    """So many of each kind, evenly over the run, the first and the last always."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for picture in sorted(pictures, key=lambda each: each["step"]):
        kinds.setdefault(picture["kind"], []).append(picture)
    return [each for kind, found in kinds.items() for each in _evenly(found, round(STAGES.get(kind, OTHER) * share))]


def _evenly(found: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    if len(found) <= most or most <= 1:
        return found[-max(1, most) :]
    return [found[round(place * (len(found) - 1) / (most - 1))] for place in range(most)]


def embed(pictures: Sequence[dict[str, Any]], files: dict[str, Path], budget: int) -> dict[str, str]:
    """{id: data address}, in at most `budget` characters: smaller and coarser as needed, and then fewer."""
    share = 1.0
    while share > 0.02:
        chosen = [each for each in choose(pictures, share) if each["id"] in files]
        for side, quality in list(LEVELS.items())[_first_level(chosen, files, budget) :]:
            found = {each["id"]: address for each in chosen if (address := _address(files[each["id"]], side, quality))}
            if sum(map(len, found.values())) <= budget:
                return found
        share /= 2
    return {}


def _first_level(chosen: Sequence[dict[str, Any]], files: dict[str, Path], budget: int) -> int:
    """Guessed from one picture, so that not all are made in vain."""
    stages = [each for each in chosen if each["kind"] == "samples"] or list(chosen)
    if not stages:
        return 0
    for level, (side, quality) in enumerate(LEVELS.items()):
        one = _address(files[stages[-1]["id"]], side, quality)
        if one is None or len(one) * len(chosen) <= budget:
            return level
    return len(LEVELS) - 1


def _address(path: Path, side: int, quality: int) -> str | None:
    """None for a file that is no picture, or that moves and is long."""
    from PIL import Image

    kind = TYPES[path.suffix.lower()]
    try:
        content = read_plain(path, MAX_PICTURE_BYTES)
        if kind == "image/gif" and len(content) > MAX_TIMELAPSE_BYTES:
            return None
        with Image.open(io.BytesIO(content)) as image:
            longest = max(image.size)
            if kind != "image/gif" and (longest > side or len(content) > MAX_UNCHANGED_BYTES):
                small, buffer, kind = image.convert("RGB"), io.BytesIO(), "image/webp"
                if longest > side:
                    size = (max(1, image.width * side // longest), max(1, image.height * side // longest))
                    small = small.resize(size, Image.Resampling.LANCZOS)
                small.save(buffer, "WEBP", quality=quality, method=3)
                content = buffer.getvalue()
    except Exception:  # whatever Pillow raises: a broken picture costs itself, not the report
        return None
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
