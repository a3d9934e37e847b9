"""Stages of loops of known and unknown length."""

from __future__ import annotations

import pytest

from safelight.watching.samples.preview_plan import PreviewSchedule


def drawn(plan: PreviewSchedule, updates: int) -> list[int]:
    found = []
    for update in range(1, updates + 1):
        if plan.is_due(update):
            plan.passed(update)
            found.append(update)
    return found


@pytest.mark.parametrize(
    ("step", "steps", "every", "expected"),
    [
        (0, 100, 30, [30, 60, 90]),
        (0, None, 30, [30, 60, 90]),
        (45, None, 30, [60, 90]),
        (0, 100, 0, []),
        (0, 100, None, [6, 25, 56, 100]),
        (50, 100, None, [56, 100]),
        (0, None, None, [16, 32, 64]),
    ],
)
def test_when_stages_are_due(step: int, steps: int | None, every: int | None, expected: list[int]) -> None:
    assert [each for each in drawn(PreviewSchedule(step, steps, every, 4, 16, 2.0), 100) if each > step] == expected


def test_one_that_was_not_drawn_stays_due() -> None:
    plan = PreviewSchedule(0, None, 10, 4, 16, 2.0)
    assert plan.is_due(10)
    assert plan.is_due(13)
    plan.passed(13)
    assert not plan.is_due(19)
    assert plan.is_due(20)
    assert not PreviewSchedule(0, None, 0, 4, 16, 2.0).is_due(10**9)
