"""A schedule that begins anew is seen; cycles that are meant are not."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.diagnosis.rate_shapes import begins_anew

STEPS = np.arange(900)
WARM = np.interp(STEPS, [0, 100, 900], [0, 1e-4, 0])
CONSTANT = np.interp(STEPS, [0, 100, 900], [0, 1e-4, 1e-4])
COSINE = 5e-5 * (1 + np.cos(np.pi * STEPS / 900))


def again(rates: np.ndarray, at: int = 450) -> np.ndarray:
    return np.concatenate([rates[:at], rates[: len(rates) - at]])


def cycles(length: int, floor: float = 0.0) -> np.ndarray:
    return floor + (1e-4 - floor) * 0.5 * (1 + np.cos(np.pi * (STEPS % length) / length))


@pytest.mark.parametrize(
    ("name", "steps", "rates", "place"),
    [
        ("linear with warm-up", STEPS, again(WARM), 450),
        ("constant with warm-up", STEPS, again(CONSTANT), 450),
        ("cosine", STEPS, again(COSINE, 500), 500),
        ("one in ten, begun between two readings", STEPS[::10], again(WARM, 455)[::10], 46),
        ("the schedule itself", STEPS, WARM, None),
        ("cosine to its end", STEPS, COSINE, None),
        ("cycles", STEPS, cycles(300), None),
        ("one cycle and its restart", STEPS, cycles(450), None),
        ("cycles that do not end at 0", STEPS, cycles(450, 3e-5), None),
        ("three cycles of a saw", STEPS, 1e-4 * (1 - (STEPS % 300) / 400), None),
        ("milestones", STEPS, 1e-4 * 0.1 ** (STEPS // 300), None),
        ("constant", STEPS, np.full(900, 1e-4), None),
        ("zero", STEPS, np.zeros(900), None),
        ("nothing", STEPS[:0], WARM[:0], None),
        ("not finite", STEPS, np.where(STEPS == 5, np.nan, again(WARM)), None),
        ("lowered by hand", STEPS, np.where(STEPS < 450, 1e-4, 3e-5), None),
    ],
)
def test_where_a_rate_begins_anew(name: str, steps: np.ndarray, rates: np.ndarray, place: int | None) -> None:
    assert begins_anew(steps, rates) == place, name
