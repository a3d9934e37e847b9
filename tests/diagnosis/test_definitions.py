"""One definition of each disease, which rules and healing share."""

from __future__ import annotations

import math

import pytest

from safelight.diagnosis.definitions import DIVERGED, STORM, STORM_STEPS, SUSPECTED, is_storm
from safelight.diagnosis.rules import clipping, precision
from safelight.diagnosis.rules.loss import divergence
from safelight.healing import alarms


def test_half_of_the_steps_are_a_storm() -> None:
    assert STORM == STORM_STEPS / 2
    assert [is_storm(count) for count in (STORM - 1, STORM, STORM_STEPS)] == [False, True, True]


@pytest.mark.parametrize(
    ("loss", "lowest", "suspected", "certain"),
    [(0.9, 0.1, False, False), (1.0, 0.5, True, False), (1.0, 0.9, False, False), (2.5, 0.5, True, True),
     (2.5, 1.0, True, False), (math.nan, 0.5, True, True), (math.inf, 0.5, True, True)],
)  # fmt: skip
def test_what_is_certain_is_suspected_first(loss: float, lowest: float, suspected: bool, certain: bool) -> None:
    assert SUSPECTED.is_met(loss, lowest, 1.0) == suspected
    assert DIVERGED.is_met(loss, lowest, 1.0) == certain


def test_rules_and_healing_have_no_limits_of_their_own() -> None:
    """What is written here stands nowhere else."""
    assert alarms.SUSPECTED is SUSPECTED
    assert alarms.is_storm is precision.is_storm is is_storm
    assert divergence.DIVERGED is DIVERGED
    for module in (alarms, divergence, precision, clipping):
        assert not {"STORM", "UNLEARNT", "AWAY", "FARTHEST"} & vars(module).keys()
