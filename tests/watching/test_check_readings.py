"""Readings under plain names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from safelight import checks
from safelight.checks import ProbeReading
from safelight.watching.check_readings import READINGS, rows_of_readings
from safelight.watching.check_report import state_of


def test_only_what_was_read_has_a_row_and_errors_are_relative() -> None:
    known = {checks.LOSS_MSE: 0.5, checks.LOSS_ZERO_MSE: 2.0, checks.DATA_LOWEST: -1.0}
    rows = {row.name: row for row in rows_of_readings(known.get)}
    assert rows["error over that of predicting 0"].value == 0.25
    assert rows["lowest"].note == "healthy: -1"
    assert len(rows) == 2


def test_a_network_without_gradients_is_a_finding() -> None:
    def first(check: ProbeReading) -> float | None:
        return 0.0 if check == checks.NETWORK_REACHED else None

    [row] = rows_of_readings(first)
    assert row.state == "finding"
    assert "detach" in row.note


@pytest.mark.parametrize(
    ("reading", "value", "state"),
    [
        (checks.NETWORK_REACHED, 0.57, "outside"),
        (checks.NETWORK_REACHED, 1.0, "ok"),
        (checks.LINE_SEARCH_RATIO["1"], 1.284, "outside"),
        (checks.LINE_SEARCH_RATIO["1"], 0.9, "ok"),
        (checks.DATA_LOWEST, -20.76, "outside"),
        (checks.DATA_LOWEST, -0.99, "ok"),
        (checks.DATA_MEAN, float("nan"), "outside"),
        (checks.NETWORK_TIME_RESPONSE, 0.0, "outside"),
        (checks.SCHEDULE_LAST, 0.005, "ok"),
        (checks.LOSS_MSE, 0.3, "ok"),
        (checks.LOSS_MSE, 1.2, "ok"),
        (checks.LOSS_MSE, 3.296, "outside"),
        (checks.SAMPLER_LEFT, 0.54, "outside"),
        (checks.SAMPLER_LEFT, 1e-6, "ok"),
        (checks.LOSS_MSE, float("inf"), "outside"),
    ],
)
def test_ok_is_finite_and_as_healthy_as_the_text_beside_it(reading: ProbeReading, value: float, state: str) -> None:
    [row] = rows_of_readings({reading: value}.get)
    assert row.state == state


def test_a_sampler_of_few_calls_is_not_judged_by_its_error() -> None:
    for calls, state in ((4.0, "ok"), (5.0, "outside")):
        rows = rows_of_readings({checks.SAMPLER_LEFT: 0.3, checks.SAMPLER_CALLS: calls}.get)
        assert rows[0].state == state
        assert "check/sampler/left" in rows[0].readings


def test_every_healthy_range_can_be_read() -> None:
    assert {state_of(0.5, usual) for *_, usual in READINGS} == {"ok", "outside"}


def test_no_reading_is_named_twice() -> None:
    assert len({(part, name) for part, name, _, _ in READINGS}) == len(READINGS)


def test_it_does_not_import_torch() -> None:
    """`safelight run --check` reports from a process that has no torch."""
    script = "import sys, safelight.watching.scripts.check; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
