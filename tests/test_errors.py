"""Every error has its exit code, which scripts and launchers rely on."""

from __future__ import annotations

import pytest

from safelight import errors


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.SafelightError, 1), (errors.CheckpointError, 1), (errors.RecordError, 1), (errors.UsageError, 2),
        (errors.RunBusy, 2), (errors.DataError, 3), (errors.PreflightError, 3), (errors.OutOfMemory, 4),
        (errors.Stopped, 5),
    ],
)  # fmt: skip
def test_exit_codes(kind: type[errors.SafelightError], code: int) -> None:
    assert kind("in words").exit_code == code
    assert str(kind("in words")) == "in words"


def test_a_diagnosis_that_stops_a_run_is_named() -> None:
    assert errors.Stopped("Stopped.", finding="lr.too-high").finding == "lr.too-high"


@pytest.mark.parametrize("code", [75, 130, 143])
def test_an_interrupted_run_ends_with_the_code_of_its_signal(code: int) -> None:
    assert errors.Interrupted("Stopped.", exit_code=code).exit_code == code
