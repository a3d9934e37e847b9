"""Contact sheets: every group under its title, large images shrunk to the cell, text where there is no image."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.pictures.grid import BACKGROUND, CELL, GAP, MARGIN, TITLE_SIZE
from safelight.pictures.sheet import COLUMNS, LINE, MAX_CELL_PIXELS, Group, sheet

TOP = MARGIN + TITLE_SIZE + 8


def noise(count: int, side: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, channels), np.uint8)


@pytest.mark.parametrize(
    ("side", "cell"), [(8, 64), (28, 56), (64, 64), (100, 100), (128, 128), (200, MAX_CELL_PIXELS)]
)
def test_the_page_has_room_for_a_row_of_cells(side: int, cell: int) -> None:
    page = np.asarray(sheet([Group("a group", noise(2, side), ["one", "two"])]))
    assert page.shape[1] == COLUMNS * (cell + GAP) - GAP + 2 * MARGIN
    if side <= MAX_CELL_PIXELS:
        factor = cell // side
        shown = page[TOP : TOP + cell : factor, MARGIN : MARGIN + cell : factor]
        assert np.array_equal(shown, noise(2, side)[0])
    beyond = page[TOP : TOP + cell, MARGIN + 2 * (cell + GAP) :]
    assert (beyond == BACKGROUND).all(), "two images and no third"


def test_grey_images_are_shrunk_too() -> None:
    page = np.asarray(sheet([Group("grey", np.full((1, 300, 300, 1), 77, np.uint8), [""])]))
    assert (page[TOP : TOP + MAX_CELL_PIXELS, MARGIN : MARGIN + MAX_CELL_PIXELS] == 77).all()


def test_groups_stand_one_below_the_other_and_lines_take_room() -> None:
    images, lines = Group("images", noise(1, 8), [""]), Group("left out", lines=["a.png: it is empty"] * 3)
    alone, both = sheet([images]), sheet([images, lines])
    assert both.height == alone.height + TITLE_SIZE + 12 + 3 * LINE + MARGIN
    assert np.array_equal(np.asarray(both)[: alone.height - MARGIN], np.asarray(alone)[: alone.height - MARGIN])
    below = np.asarray(both)[alone.height + TITLE_SIZE :]
    assert (below != BACKGROUND).any()
    assert sheet([lines]).width == COLUMNS * (CELL + GAP) - GAP + 2 * MARGIN, "without images a cell is the usual one"
