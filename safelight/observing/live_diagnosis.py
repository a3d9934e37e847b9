"""Runs the rules while a run trains, as often as that costs next to nothing, and reports what is new."""

from __future__ import annotations

import time
from collections.abc import Callable

from safelight.diagnosis import diagnose
from safelight.diagnosis.finding import Finding
from safelight.observing.recorder import Recorder
from safelight.run import RunFolder

SHARE = 0.003  # of the time
FIRST = 5.0  # seconds


class LiveDiagnosis:
    """Reads the record as everybody else does. If it fails, that is reported once, and it is switched off."""

    def __init__(self, folder: RunFolder, record: Recorder, say: Callable[[str], None]) -> None:
        self._folder, self._record, self._say = folder, record, say
        self._reported: dict[str, bool] = {}
        self._next = time.monotonic() + FIRST

    def visit(self, step: int, *, at_last: bool = False) -> None:
        now = time.monotonic()
        if now < self._next and not at_last:
            return
        try:
            self._record.flush(wait=at_last)
            for finding in diagnose(self._folder.path):
                self._report(step, finding)
        except Exception as error:
            self._say(f"The diagnosis failed ({type(error).__name__}: {error}); training continues without it.")
            self._next = float("inf")
            return
        taken = time.monotonic() - now
        self._next = time.monotonic() + max(FIRST, taken / SHARE)

    def _report(self, step: int, finding: Finding) -> None:
        over = finding.over is not None
        if (
            finding.severity == "info"
            or self._reported.get(finding.code) == over
            or (over and finding.code not in self._reported)
        ):
            return
        self._reported[finding.code] = over
        self._record.finding(step, finding)
        if over:
            self._say(f"{finding.code} {finding.cause} is over since step {finding.over:,}.")
        else:
            self._say(
                f"{finding.severity.capitalize()} {finding.code} {finding.cause}: {finding.summary} {finding.fix.text}"
            )
            self._folder.report(last_finding=finding.cause)
