"""Seconds per step, and the share of waiting."""

from __future__ import annotations

import math

import pytest

from safelight.observing import speed as module
from safelight.observing.speed import Speedometer


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
