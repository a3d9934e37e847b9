"""When checkpoints are due. What is in them, kills and resumes: tests/checkpoints and tests/test_start.py."""

from __future__ import annotations

import pytest
from tiny import tiny

from safelight.training.saving import checkpoint_interval


@pytest.mark.parametrize(
    ("every", "steps", "expected"),
    [(4, 12, 4), (None, 12, 1), (None, 400, 20), (None, 20_000, 1000), (None, 1_000_000, 1000), (5000, 100, 5000)],
)
def test_checkpoints_come_twenty_times_and_at_least_every_thousand_steps(
    every: int | None, steps: int, expected: int
) -> None:
    assert checkpoint_interval(tiny(checkpoint__every=every, train__steps=steps)) == expected
