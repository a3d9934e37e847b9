"""Seconds per step, and the share of waiting."""

from __future__ import annotations

import math

import pytest

from safelight.observing import speed as module
from safelight.observing.speed import SHORTEST_WAIT, WAITS, DataWait, Pace, Speedometer


@pytest.mark.parametrize(("waited", "worked"), [(0.0, 0.5), (0.5, 0.5), (3.0, 1.0)])
def test_steps_of_one_length_have_that_length(waited: float, worked: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    speed = Speedometer(before=100.0)
    assert math.isinf(speed.seconds_per_step)
    for _ in range(20):
        with speed.waiting():
            now[0] += waited
        with speed.working():
            now[0] += worked
        now[0] += 60  # pictures and checkpoints are left out
    assert speed.seconds_per_step == pytest.approx(waited + worked)
    assert speed.share_waiting == pytest.approx(waited / (waited + worked))
    assert speed.trained == pytest.approx(100 + 20 * (waited + worked))


@pytest.mark.parametrize(
    ("waited", "whole", "share"),
    [(0.5, 1.0, 0.5), (2.0, 1.0, 1.0), (0.0, 1.0, 0.0), (SHORTEST_WAIT / 2, SHORTEST_WAIT, 0.0)],
    ids=["half", "never more than all", "none", "bookkeeping of short steps"],
)
def test_a_foreign_loop_waits_for_a_share_of_its_steps(waited: float, whole: float, share: float) -> None:
    wait, found = DataWait(), list[float | None]()
    for step in range(2 * WAITS):
        wait.begin(step)
        wait.end(step + waited)
        wait.end(step + 10 * waited)  # a second call in the same step
        found.append(wait.share(whole))
    assert found == ([None] * (WAITS - 1) + [pytest.approx(share)]) * 2


def test_the_time_that_is_left_follows_the_recent_steps() -> None:
    pace, seconds = Pace(500), [9.0, *[0.1] * 199]
    found = {step: left for step, each in enumerate(seconds, 1) if (left := pace.left(step, each)) is not None}
    assert list(found) == list(range(WAITS, 200, WAITS))
    assert found[192] == pytest.approx(308 * 0.1, rel=0.05)
    assert pace.left(500, 0.1) == pace.left(512, 0.1) == 0
    assert Pace(None).left(WAITS, 1.0) is None
