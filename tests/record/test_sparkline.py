"""Curves in one line of text."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.record.sparkline import draw
from safelight.record.zoom import from_numbers


@pytest.mark.parametrize(
    ("numbers", "columns", "text"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([0, np.nan, 7, 7], 4, "▁×██"),
        ([1, 1, 1], 9, "▁▁▁"),
        ([np.nan, np.inf], 2, "××"),
        ([0, 0, 0, np.nan, 7, 7], 3, "▁×█"),
        ([], 5, ""),
    ],
)
def test_a_curve_in_one_line(numbers: list[float], columns: int, text: str) -> None:
    assert draw(from_numbers(np.arange(len(numbers)), np.array(numbers, np.float32), 1), columns) == text


def test_a_gap_in_the_curve() -> None:
    assert draw(from_numbers(np.array([0, 9]), np.array([0, 1], np.float32), 1), 5) == "▁   █"
