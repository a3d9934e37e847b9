"""The contact sheet of a set of images: a few of them, and those that are worth a look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from safelight.data.images import Images
from safelight.pictures.sheet import COLUMNS, Group, sheet
from safelight.words import printable

TITLES = {"flattest": "Least contrast"}  # others are called by their names: darkest, brightest, widest, …
MAX_LISTED_FILES = 40  # files left out that are named; `safelight data --json` has all


def contact_sheet(images: Images, found: dict[str, Any]) -> Image.Image:
    """What is worth looking at, a dozen of each; `found` is the summary of the images."""
    some = np.unique(np.linspace(0, len(images) - 1, 2 * COLUMNS).astype(int)).tolist()
    copies = [row for rows in found["duplicate_rows"] for row in rows]
    alike = [row for pair in found["near_rows"] for row in pair]
    extremes = {TITLES.get(name) or name.capitalize(): rows for name, rows in found["extremes"].items()}
    rejected = [f"{name}: {reason}" for name, reason in found["rejected"][:MAX_LISTED_FILES]]
    groups = [
        *_group(images, f"{len(images):,} images", some),
        *_group(images, f"Equal another one: {found['duplicates']:,}", copies[:COLUMNS]),
        *_group(images, f"Pairs that look alike: {found['near']:,}", alike[:COLUMNS]),
        *_group(images, f"Of one colour: {found['blank']:,}", found["blank_rows"][:COLUMNS]),
        *(group for title, rows in extremes.items() for group in _group(images, title, rows[:COLUMNS])),
        *([Group(f"Left out: {len(found['rejected']):,}", lines=rejected)] if rejected else []),
    ]
    return sheet(groups)


def _group(images: Images, title: str, rows: list[int]) -> list[Group]:
    return [Group(title, images.take(np.array(rows)), [_called(images, row) for row in rows])] if rows else []


def _called(images: Images, row: int) -> str:
    if images.names is not None:
        return printable(Path(images.names[row]).name)
    return str(row) if images.labels is None else f"{images.class_names[images.labels[row]]}"
