"""Figures: the verdict follows from the interval and the range of real images, and draws repeat."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from safelight.evaluate.figures import against_real, draw_rows, range_text, span, split


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0.5, "lacks"), (0.79, "lacks"), (0.81, "usual"), (1.0, "usual"), (1.29, "usual"), (1.31, "exceeds")],
)
def test_the_verdict_is_that_of_the_interval(value: float, verdict: str) -> None:
    words = {"lack": "lacks", "excess": "exceeds", "usual": "usual"}
    found = against_real("variety", value, 0.1, (0.9, 1.2), 50, "It varies", **words)
    assert found.sentence == f"It varies: {verdict}."
    assert (found.low, found.high) == (pytest.approx(value - 0.1), pytest.approx(value + 0.1))
    neither = against_real("variety", value, 0.1, (0.9, 1.2), 50, "It varies")
    assert neither.sentence == "It varies: as real images do."


@pytest.mark.parametrize(("value", "most", "interval"), [(0.05, 1.0, (0, 0.15)), (0.95, 1.0, (0.85, 1)),
                                                         (0.95, math.inf, (0.85, 1.05))])  # fmt: skip
def test_an_interval_keeps_to_what_is_possible(value: float, most: float, interval: tuple[float, float]) -> None:
    found = against_real("share", value, 0.1, (0.2, 0.9), 50, "So many", most=most)
    assert (found.low, found.high) == pytest.approx(interval)
    told = json.loads(json.dumps(found.to_json()))
    assert told == {"value": value, "interval": [found.low, found.high], "real": [0.2, 0.9], "count": 50,
                    "sentence": "So many: as real images do."}  # fmt: skip


def test_ranges() -> None:
    assert span(np.arange(1001.0)) == (25, 975)
    assert span(np.array([3.0])) == (3, 3)
    assert range_text(0.1234, 2) == "0.12 to 2.00"
    assert range_text(0.1234, 1, form=".1%") == "12.3% to 100.0%"


def test_draws_repeat_and_share_no_row() -> None:
    first, second = split(100, 40, 7)
    assert len({*first.tolist(), *second.tolist()}) == 80
    assert np.array_equal(first, split(100, 40, 7)[0])
    assert not np.array_equal(first, split(100, 40, 8)[0])
    rows = draw_rows(100, 30)
    assert len(set(rows.tolist())) == 30
    assert (np.diff(rows) > 0).all()
    assert np.array_equal(rows, draw_rows(100, 30))
    assert np.array_equal(draw_rows(20, 30), np.arange(20))
