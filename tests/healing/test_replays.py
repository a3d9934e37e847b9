"""What repeated passes of one step show."""

from __future__ import annotations

import math

import pytest

from safelight.healing.alarms import MIN_HISTORY_STEPS
from safelight.healing.replays import Replays

NAN = math.nan


@pytest.mark.parametrize(
    ("passes", "verdicts"),
    [
        ([(0.4, 1.0)], ["continue"]),  # healthy
        ([(0.4, 1e6), (0.4, 1e6)], ["again", "continue"]),  # a hard batch
        ([(0.4, 1e6), (0.4, 1.0)], ["again", "redone"]),  # an error of the machine
        ([(NAN, NAN), (0.4, 1.0)], ["again", "redone"]),
        ([(NAN, NAN), (NAN, NAN)], ["again", "isolate"]),
        ([(0.4, 1e6), (0.4, 1e5), (0.4, 1.0)], ["again", "again", "redone"]),  # two errors in a row
        ([(0.4, 1e6), (0.4, 1e5), (0.4, 1e5)], ["again", "again", "redone"]),  # the first was one, the rest is hard
        ([(0.4, 10.0**n) for n in (6, 7, 8, 9)], ["again", "again", "again", "redone"]),  # it never comes out alike
        ([(0.4, 1e6), (0.4, 1.0005e6)], ["again", "continue"]),  # arithmetic that is not exact
    ],
)
def test_passes_of_a_step_are_told_apart(passes: list[tuple[float, float]], verdicts: list[str]) -> None:
    replays = Replays()
    for _ in range(MIN_HISTORY_STEPS):
        replays.remember(0.4, 1.0)
    replays.begin()
    assert [replays.judge(*each, finite=math.isfinite(each[1])) for each in passes] == verdicts
