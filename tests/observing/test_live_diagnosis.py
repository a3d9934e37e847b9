"""Findings while a run trains: found in a thread, reported once by the thread that trains."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from safelight.diagnosis.finding import Finding, Fix
from safelight.observing import live_diagnosis
from safelight.observing.live_diagnosis import LiveDiagnosis
from safelight.run import RunFolder


def finding(code: str = "LOS001", *, over: int | None = None, severity: Any = "error") -> Finding:
    return Finding(code, "loss.nonfinite", severity, 3, 1.0, "It is not finite.", (), Fix("Lower it."), over=over)


class Recorded:
    """In the place of the recorder."""

    def __init__(self) -> None:
        self.findings: list[tuple[int, str, int | None]] = []

    def wait_until_written(self) -> None: ...

    def finding(self, step: int, found: Finding) -> None:
        self.findings.append((step, found.code, found.over))


class Diagnoses:
    """In the place of `diagnose`: the next answer each time; each can be held until the test lets it end."""

    def __init__(self, *answers: list[Finding] | Exception) -> None:
        self._answers, self.threads = list(answers), list[str]()
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self, path: Path) -> list[Finding]:
        self.may_end.wait()
        self.threads.append(threading.current_thread().name)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in seconds."""
    now = [0.0]
    monkeypatch.setattr(live_diagnosis.time, "monotonic", lambda: now[0])
    return now


def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, diagnoses: Diagnoses, **more: Any) -> Any:
    monkeypatch.setattr(live_diagnosis, "diagnose", diagnoses)
    record, said = Recorded(), list[str]()
    return LiveDiagnosis(RunFolder(tmp_path), record, said.append, **more), record, said  # type: ignore[arg-type]


def poll(live: LiveDiagnosis, clock: list[float], step: int) -> None:
    """Long enough after the last time that a diagnosis is due, and until it has ended."""
    clock[0] += 1e6
    live.poll(step)
    if live._thread is not None:
        live._thread.join()
    clock[0] -= 1e5  # not due: only what was found is reported
    live._next = clock[0] + 1
    live.poll(step)


def test_what_is_found_is_reported_once_and_its_end_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    diagnoses = Diagnoses([finding()], [finding()], [finding(over=9)], [finding(over=9)])
    live, record, said = make(tmp_path, monkeypatch, diagnoses)
    for step in (10, 20, 30, 40):
        poll(live, clock, step)
    assert record.findings == [(10, "LOS001", None), (30, "LOS001", 9)]
    assert said == [
        "Error LOS001 loss.nonfinite: It is not finite. Lower it.",
        "LOS001 loss.nonfinite is over since step 9.",
    ]
    assert set(diagnoses.threads) == {"safelight-diagnosis"}


def test_a_warning_that_becomes_an_error_is_reported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    diagnoses = Diagnoses(*([finding(severity=each)] for each in ("warning", "error", "warning", "error")))
    live, _, said = make(tmp_path, monkeypatch, diagnoses)
    for step in (10, 20):
        poll(live, clock, step)
    assert [line.split()[0] for line in said] == ["Warning", "Error"]


@pytest.mark.parametrize(
    "answer", [[], [finding(severity="info")], [finding(over=4)]], ids=["nothing", "info", "over before it was seen"]
)
def test_what_needs_no_word_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float], answer: list[Finding]
) -> None:
    live, record, said = make(tmp_path, monkeypatch, Diagnoses(answer))
    poll(live, clock, 10)
    assert (record.findings, said) == ([], [])


def test_the_training_does_not_wait_for_a_diagnosis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    diagnoses = Diagnoses([finding()])
    diagnoses.may_end.clear()
    live, record, _ = make(tmp_path, monkeypatch, diagnoses)
    clock[0] = 1e6
    for step in range(5):  # each returns, and none starts a second one
        live.poll(step)
    assert record.findings == []
    diagnoses.may_end.set()
    live._thread.join()
    live.poll(6)
    assert record.findings == [(6, "LOS001", None)]


def test_a_failing_diagnosis_is_reported_once_and_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    live, _, said = make(tmp_path, monkeypatch, Diagnoses(ValueError("no"), [finding()]))
    clock[0] = 1e6
    live.poll(1)
    live._thread.join()
    for step in range(2, 5):
        clock[0] += 1e6
        live.poll(step)
    live.finish(9)
    assert said == ["The diagnosis failed (ValueError: no); training continues without it."]


def test_what_was_found_about_steps_that_are_given_up_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    live, record, _ = make(tmp_path, monkeypatch, Diagnoses([finding()], []))
    clock[0] = 1e6
    live.poll(1)
    live.restart()
    live.finish(5)
    assert record.findings == []


def test_the_end_has_its_own_diagnosis_and_a_listener_may_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    def stop(found: Finding) -> None:
        raise KeyboardInterrupt(found.code)

    live, record, said = make(tmp_path, monkeypatch, Diagnoses([finding()]), on_finding=stop)
    with pytest.raises(KeyboardInterrupt, match="LOS001"):
        live.finish(12)
    assert record.findings == [(12, "LOS001", None)]
    assert len(said) == 1


def test_what_should_be_told_at_once_is_looked_for_at_once_and_once_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    live, _, said = make(tmp_path, monkeypatch, Diagnoses([], [finding()], [finding()]))
    poll(live, clock, 10)
    assert said == []
    for _ in range(3):
        live.hasten()
        live.poll(20)
        if live._thread is not None:
            live._thread.join()
        live._next = max(live._next, clock[0] + 1)
        live.poll(20)
    assert len(said) == 1
    assert live._thread is None
