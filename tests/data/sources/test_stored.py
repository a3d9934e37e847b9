"""Stored images are read back as they were, and damage is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safelight.data.sources import not_found
from safelight.data.sources.stored import FACTS, LABELS, PIXELS, SHAPES, is_stored, store, stored
from safelight.errors import DataError

SMALL, LARGE = np.arange(12, dtype=np.uint8).reshape(2, 2, 3), np.zeros((4, 3, 1), np.uint8)


def test_images_come_back_in_order(tmp_path: Path) -> None:
    path, count = store([(SMALL, 7), (LARGE, 5), (SMALL + 1, 7)], tmp_path, None)
    assert (count, is_stored(path), is_stored(tmp_path)) == (3, True, False)
    found = stored(path)
    assert (found.count, found.class_names) == (3, ("5", "7"))
    chunks = list(found.chunks())
    assert [pixels.shape for pixels, _ in chunks] == [(1, 2, 2, 3), (1, 4, 3, 1), (1, 2, 2, 3)]
    assert (chunks[2][0][0] == SMALL + 1).all()
    assert [labels.tolist() for _, labels in chunks if labels is not None] == [[1], [0], [1]]


@pytest.mark.parametrize("name", [FACTS, PIXELS, LABELS])
def test_damage_is_told(name: str, tmp_path: Path) -> None:
    path, _ = store([(SMALL, 0)], tmp_path, None)
    (path / name).write_bytes(b"{}" if name == FACTS else b"12345678")
    with pytest.raises(DataError, match=r"is not as it was written\. Remove it and pass the images again"):
        stored(path)


def test_a_place_that_is_gone_is_told() -> None:
    assert "Pass the same images again: safelight.resume(run, data=…)" in not_found("cache/images-0123.own")


@pytest.mark.parametrize(
    ("facts", "shapes", "labels"),
    [
        ({}, [[0, 4, 3], [2, 2, 3]], [0, 0]),
        ({}, [[-2, -2, 3]], [0]),
        ({}, [[2, 2, 7]], [0]),
        ({}, [[2, 2, 3]], [77]),
        ({}, [[2, 2, 3]], [-9]),
        ({"count": 0}, [], []),
        ({"count": float("inf")}, [[2, 2, 3]], [0]),
        ({"count": -1}, [[2, 2, 3]], [0]),
    ],
)
def test_what_nobody_stored_is_refused(
    facts: dict[str, Any], shapes: list[list[int]], labels: list[int], tmp_path: Path
) -> None:
    """Sizes, channels and labels that no image has; sizes of files are right."""
    path = tmp_path / "forged.own"
    path.mkdir()
    facts = {"count": len(shapes), "class_names": ["a"], "fingerprint": "f"} | facts
    (path / FACTS).write_text(json.dumps(facts))
    (path / SHAPES).write_bytes(np.array(shapes, "<i4").tobytes())
    (path / LABELS).write_bytes(np.array(labels, "<i4").tobytes())
    (path / PIXELS).write_bytes(bytes(sum(h * w * c for h, w, c in shapes)))
    with pytest.raises(DataError, match="is not as it was written"):
        stored(path)
