"""What the companions of the loop share, and what a step becomes on the host."""

from __future__ import annotations

from typing import Any

import pytest
from tiny import Quiet, parts_of

from safelight.errors import ProcessLost
from safelight.observing.speed import Speedometer
from safelight.training.step_reporter import TrainingSession


def session(screen: Quiet) -> TrainingSession:
    speed: Any = Speedometer(before=10.0)
    speed._worked, speed._weight = 2.0, 1.0  # two seconds per step
    return TrainingSession(parts_of(), None, None, speed, screen)  # type: ignore[arg-type]


def test_the_time_that_is_left_follows_the_steps() -> None:
    found = session(Quiet())
    assert (found.step, found.seconds_left, found.seconds()) == (0, 24.0, (10.0, 34.0))
    found.setup.state.counters.step = 12
    assert (found.step, found.seconds_left, found.seconds()) == (12, 0.0, (10.0, 10.0))


def test_what_fails_beside_the_training_costs_one_line() -> None:
    screen, made = Quiet(), list[int]()
    found = session(screen)
    found.attempt("The picture", made.append, 3)
    assert (made, screen.said) == ([3], [])
    found.attempt("The picture", lambda: 1 // 0)
    assert len(screen.said) == 1
    assert screen.said[0].startswith("The picture could not be made (ZeroDivisionError")


def test_a_lost_process_is_no_failed_picture() -> None:
    def lose() -> None:
        raise ProcessLost("Process 1 is gone.")

    with pytest.raises(ProcessLost):
        session(Quiet()).attempt("The picture", lose)
