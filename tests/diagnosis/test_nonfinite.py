"""Where values began not to be finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from histories import Event, broken, checks

from safelight.diagnosis.nonfinite import first_steps
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory

LOST = ([49, 50, 51, 52], [1, np.nan, np.nan, np.nan])  # the error, from a step on
KEPT = ([49, 50, 51, 52], [1, np.nan, 1, np.nan])  # with a finite one between


@pytest.mark.parametrize(
    ("of", "readings", "events", "expected"),
    [
        ("pred", {"finite__pred": ([50], [0])}, (), [50]),
        ("pred", {"finite__pred": ([50, 51], [0, 0]), "loss__error": LOST}, (), [50]),
        ("pred", {"finite__pred": ([50, 52], [0, 0]), "loss__error": KEPT}, (), [50, 52]),
        ("pred", {"finite__pred": ([50], [0]), "finite__noise": ([50], [0])}, (), []),
        ("pred", {"finite__pred": ([50], [0]), "loss__error": LOST}, broken([50, 51]), [50]),
        ("pred", {"finite__pred": ([51], [0]), "loss__error": LOST}, broken([50, 51]), []),
        ("pred", {"finite__pred": ([52], [0]), "loss__error": KEPT}, broken([50]), [52]),
        ("x_t", {"finite__x_t": ([50], [0]), "finite__pred": ([50], [0])}, (), [50]),
        ("x_t", {"finite__x_t": ([50], [0]), "finite__x0": ([50], [0])}, (), []),
        ("x_t", {"finite__x_t": ([51], [0]), "finite__pred": ([50], [0]), "loss__error": LOST}, (), []),
        ("x0", {"finite__x0": ([7, 50], [0, 0])}, (), [7, 50]),
        ("x0", {}, broken([50]), []),
    ],
)  # fmt: skip
def test_what_came_first(of: str, readings: dict[str, Any], events: tuple[Event, ...], expected: list[int]) -> None:
    finite = {"loss__error": (np.arange(128), np.ones(128))}
    run = RunHistory(InMemoryReadings(checks(**finite | readings), events))
    assert first_steps(run, of) == expected
