"""Skill as a number."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.yardstick.skill import Yardstick, skill, skill_by_level, way_to_floor

CEILING, LINEAR, FLOOR = (
    np.array([1.0, 100.0, 1.0, 1.0]),
    np.array([0.5, 40.0, 0.2, 0.999]),
    np.array([0.1, 20, 0, 0.9]),
)
STICK, LEVEL = Yardstick(CEILING, LINEAR, FLOOR), np.array([0, 1, 2, 3])


@pytest.mark.parametrize(
    ("loss", "expected"),
    [(CEILING, 0.0), (LINEAR, 1.0), (2 * CEILING, -3 / 1.9), (FLOOR, 2.7 / 1.9)],
    ids=["no shape was learnt", "the filter", "worse than that", "the floor"],
)
def test_every_level_counts_the_same_whatever_its_losses_are(loss: np.ndarray, expected: float) -> None:
    assert skill(loss, STICK, LEVEL, 4) == pytest.approx(expected)


def test_a_level_says_nothing_where_nothing_can_be_gained_or_was_seen() -> None:
    found = skill_by_level(0.9 * LINEAR, STICK, LEVEL, 5)
    assert found[:3] == pytest.approx([0.55 / 0.5, 0.64 / 0.6, 0.82 / 0.8])
    assert np.isnan(found[3:]).all(), "the filter gains a thousandth there, and no sample is there"
    assert np.isnan(skill(CEILING, Yardstick(CEILING, CEILING, CEILING), LEVEL, 4))


def test_the_way_to_the_floor() -> None:
    assert way_to_floor(LINEAR, STICK) == 0
    assert way_to_floor(FLOOR, STICK) == 1
    assert np.isnan(way_to_floor(LINEAR, Yardstick(CEILING, LINEAR, LINEAR)))
