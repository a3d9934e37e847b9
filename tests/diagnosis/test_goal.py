"""Whether the distance that is aimed at was reached, and when."""

from __future__ import annotations

import math

import pytest

from safelight.diagnosis.goal import find_goal
from safelight.diagnosis.run_history import InMemoryReadings

STEPS = [9, 19, 29, 39]  # of updates, from 0


@pytest.mark.parametrize(
    ("targets", "distances", "words"),
    [
        ([20.0] * 4, [40.0, 19.0, 25.0, 18.0], "The target distance of 20 was reached at step 20."),
        ([20.0] * 4, [40.0, 20.0, 25.0, 28.0], "The target distance of 20 was reached at step 20."),
        ([20.0] * 4, [40.0, 30.0, 20.5, 28.0],
         "The target distance of 20 was not reached: the lowest was 20.5, at step 30."),
        ([50.0, 50.0, 50.0, 19.0], [40.0, 30.0, 25.0, 18.0], "The target distance of 19 was reached at step 40."),
        ([20.0] * 4, [math.nan, 30.0, math.inf, 18.0], "The target distance of 20 was reached at step 40."),
    ],
    ids=["reached, and above again", "exactly", "not reached", "a resume with another target", "not finite"],
)  # fmt: skip
def test_the_step_at_which_it_was_reached(targets: list[float], distances: list[float], words: str) -> None:
    readings = {"quality/target_distance": (STEPS, targets), "quality/distance": (STEPS, distances)}
    goal = find_goal(InMemoryReadings(readings))
    assert goal is not None
    assert goal.words() == words


@pytest.mark.parametrize(
    "readings",
    [{}, {"quality/distance": (STEPS, [1.0] * 4)}, {"quality/target_distance": (STEPS, [1.0] * 4)},
     {"quality/target_distance": (STEPS, [1.0] * 4), "quality/distance": (STEPS, [math.nan] * 4)}],
    ids=["nothing", "no target", "no evaluation", "no finite one"],
)  # fmt: skip
def test_without_a_target_or_an_evaluation_nothing_is_said(readings: dict[str, tuple[list[int], list[float]]]) -> None:
    assert find_goal(InMemoryReadings(readings)) is None
