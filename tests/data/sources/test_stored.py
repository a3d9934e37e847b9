"""Stored images are read back as they were, and damage is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from safelight.data.sources import not_found
from safelight.data.sources.stored import FACTS, LABELS, PIXELS, is_stored, store, stored
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
