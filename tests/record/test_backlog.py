"""Readings of single steps become tables, and one that is no number takes no other with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from safelight.record.backlog import group_by_signals


def test_steps_with_the_same_signals_make_one_table() -> None:
    rows = [(0, {"a": 1.0, "b": math.nan}), (1, {"a": 2.0, "b": 3.0}), (2, {"a": 4.0}), (3, {"a": 1e300, "b": 0.0})]
    tables = group_by_signals(rows)
    assert [(steps.tolist(), names) for steps, names, _ in tables] == [([0, 1, 3], ("a", "b")), ([2], ("a",))]
    assert np.isnan(tables[0][2][0, 1])
    assert np.isinf(tables[0][2][2, 0])
    assert tables[0][2].dtype == np.float32


def test_what_is_no_number_stands_alone() -> None:
    rows: list[tuple[int, Any]] = [(5, {"a": 1.0, "b": "high"}), (6, {"a": 2.0, "b": 3.0})]
    good = {(int(steps[0]), names[0]): values[0, 0] for steps, names, values in group_by_signals(rows)}
    assert good[6, "b"] == 3.0
    assert good[5, "a"] == 1.0
    assert group_by_signals([(1, {})]) == []
