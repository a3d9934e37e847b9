"""Readings as rows: packed, summed up and unpacked."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from safelight.record.chunks import Chunk, combine, pack, summarise, unpack


@pytest.mark.parametrize(
    ("numbers", "nonfinite", "mean"),
    [([1.0, 2.0], 0, 1.5), ([1e300, 1.0], 1, 1.0), ([3e38, 3e38], 0, pytest.approx(3e38)), ([-0.0], 0, 0.0)],
)
def test_summary_does_not_overflow(numbers: list[float], nonfinite: int, mean: float) -> None:
    """float32 keeps the numbers, float64 adds them up."""
    with np.errstate(over="ignore"):
        [row] = summarise(np.array([numbers], np.float32))
    assert (row[1], row[4]) == (nonfinite, mean)


@pytest.mark.parametrize("steps", [[3, 4, 5], [3, 5, 9], [9, 3, 5], [7]])
def test_a_row_unpacks_to_what_was_packed_in_order(steps: list[int]) -> None:
    parts = [np.array([step]) for step in steps]
    [row] = pack([Chunk("a", 0, parts, [np.array([step / 2], np.float32) for step in steps])])
    signal, first, last, count, *_, places, numbers = row
    assert (signal, first, last, count) == ("a", min(steps), max(steps), len(steps))
    assert (places is None) == (max(steps) - min(steps) == len(steps) - 1)
    found = unpack(first, last, places, numbers)
    assert found[0].tolist() == sorted(steps)
    assert found[1].tolist() == [step / 2 for step in sorted(steps)]


@pytest.mark.parametrize(
    ("row", "bad"),
    [((0, 2, None, bytes(12)), False), ((0, 2, None, bytes(8)), True), ((0, 9, bytes(16), bytes(12)), True),
     ((0, -1, None, b""), True), ((0, 2**60, None, bytes(4)), True)],
)  # fmt: skip
def test_a_row_that_does_not_hold_what_it_claims_is_refused(row: tuple, bad: bool) -> None:
    with pytest.raises(ValueError, match="a row of steps") if bad else nullcontext():
        assert len(unpack(*row)[1]) == 3


def test_rolled_up_statistics_are_those_of_all_numbers() -> None:
    numbers = np.array([[1, 2, np.nan], [4, np.inf, 9]], np.float32)
    rows = [(3 * i, 3 * i + 2, *figures) for i, figures in enumerate(summarise(numbers))]
    assert combine(rows) == (0, 5, 6, 2, 1.0, 9.0, 4.0, 9.0)
    assert combine([(0, 0, 1, 1, None, None, None, None)]) == (0, 0, 1, 1, None, None, None, None)
