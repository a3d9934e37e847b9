"""Skill as a number."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.yardstick.skill import Yardstick, skill, way_to_floor

ZERO, LINEAR, FLOOR = (np.array(each) for each in ([1.0, 1.0, 1.0, 1.0], [0.5, 0.6, 0.2, 0.999], [0.1, 0.2, 0.0, 0.9]))
STICK = Yardstick(ZERO, LINEAR, FLOOR)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [(ZERO, 0.0), (LINEAR, 1.0), (2 * ZERO, -1 / 0.42525), (FLOOR, 0.7 / 0.42525)],
    ids=["the mean image", "the filter", "worse than nothing", "the floor"],
)
def test_skill(loss: np.ndarray, expected: float) -> None:
    assert skill(loss, STICK)[0] == pytest.approx(expected)


def test_each_level_has_its_own_and_says_nothing_where_nothing_can_be_gained() -> None:
    level = np.array([0, 0, 1, 2])
    found = skill(LINEAR - 0.1, STICK, level, 4)
    assert found[:2] == pytest.approx([0.55 / 0.45, 0.9 / 0.8])
    assert np.isnan(found[2:]).all(), "the filter gains a thousandth there, and no sample is there"


def test_the_way_to_the_floor() -> None:
    assert way_to_floor(LINEAR, STICK) == 0
    assert way_to_floor(FLOOR, STICK) == 1
    assert np.isnan(way_to_floor(LINEAR, Yardstick(ZERO, LINEAR)))
