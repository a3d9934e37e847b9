"""Numbers in any spelling."""

from __future__ import annotations

import math
from typing import Any

import pytest

from safelight.diagnosis.logs.cells import flatten, is_rounded_zero, number_of


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        (1, 1.0), (0.5, 0.5), ("0.5", 0.5), (" 1e-4 ", 1e-4), ("0,25", 0.25), ("1,000", 1000.0), ("12,345.5", 12345.5),
        ("tensor(0.5, device='cuda:0')", 0.5), ("tensor(nan)", math.nan), ("np.float64(2.5)", 2.5),
        ("NaN", math.nan), ("-nan", math.nan), ("nan", math.nan), ("1.#QNAN", math.nan), ("inf", math.inf),
        ("-inf", -math.inf), ("Infinity", math.inf), ("-Infinity", -math.inf), ("1.#INF", math.inf),
        (math.nan, math.nan), (10**400, math.inf), ("0.0", 0.0), ("0", 0.0), ("0.00e+00", 0.0),
        ("0.0000", None), ("", None), ("N/A", None), (None, None), (True, None), ("cat", None), ("1,2,3", None),
        ([1], None), ("1" * 500, None), ("'0.5'", 0.5),
    ],
)  # fmt: skip
def test_numbers(cell: Any, number: float | None) -> None:
    found = number_of(cell)
    same = found == number or (found is not None and number is not None and math.isnan(found) and math.isnan(number))
    assert same, (cell, found)


def test_zeros_that_are_left_of_rounding() -> None:
    assert is_rounded_zero("0.0000")
    assert not any(map(is_rounded_zero, ("0.0", "0", "0.001", 0.0)))


def test_nested_entries_get_one_name() -> None:
    assert dict(flatten({"train": {"loss": 1, "deep": {"lr": 2}}, "step": 3})) == {
        "train/loss": 1, "train/deep/lr": 2, "step": 3
    }  # fmt: skip
