"""Spans of a zoom and their total."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.record.zoom import choose_width, from_rows, sum_up


@pytest.mark.parametrize(
    ("steps", "pixels", "width"),
    [(1, 1, 1), (3, 1, 1), (4, 1, 4), (1000, 1000, 1), (3999, 1000, 1), (4000, 1000, 4), (10**6, 1000, 256),
     (10**6, 1, 4**9), (10**6, 0, 4**9), (10**15, 1, 64 * 4**12), (0, 5, 1)],
)  # fmt: skip
def test_the_width_of_spans(steps: int, pixels: int, width: int) -> None:
    assert choose_width(steps, pixels) == width


def test_a_row_with_a_mean_of_nothing_is_left_out_of_a_total() -> None:
    """As only a stranger would write it."""
    found = sum_up(from_rows([(0, 2, 0, 0, 1.0, 1.0, 7.0, 1.0)]))
    assert found is not None
    assert np.isnan(found.mean)
