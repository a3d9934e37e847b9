"""Runs the rules while a run trains, as often as that costs next to nothing, and reports what is new."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from safelight.diagnosis import diagnose
from safelight.diagnosis.finding import ORDER, Finding
from safelight.observing.recorder import Recorder
from safelight.run import RunFolder

OnFinding = Callable[[Finding], object]
MAX_TIME_SHARE = 0.003  # of the time
MIN_SECONDS_BETWEEN = 1.0  # seconds between two


class LiveDiagnosis:
    """Reads the record as everybody else does, in a thread of its own. The thread that trains reports what it found, so
    that a finding may end the training. If the diagnosis fails, that is reported once, and it is switched off."""

    def __init__(
        self, folder: RunFolder, record: Recorder, say: Callable[[str], None], on_finding: OnFinding | None = None
    ) -> None:
        self._folder, self._record, self._say, self._on_finding = folder, record, say, on_finding
        self._reported: dict[str, Finding] = {}  # by code, as it was said last
        self._thread: threading.Thread | None = None
        self._result: list[Finding] | Exception = []
        self._next = time.monotonic() + MIN_SECONDS_BETWEEN
        self._has_hastened = False

    def hasten(self) -> None:
        """Something happened that should be told at once: the next diagnosis is due now. Once only, so that what
        happens at every step costs no more."""
        if self._thread is None and not self._has_hastened and self._next < float("inf"):
            self._has_hastened, self._next = True, time.monotonic()

    def poll(self, step: int) -> None:
        """After some steps: reports what was found, and starts the next diagnosis when it is due."""
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
            self._report_all(step)
        if self._thread is None and time.monotonic() >= self._next:
            self._thread = threading.Thread(target=self._diagnose, name="safelight-diagnosis", daemon=True)
            self._thread.start()

    def finish(self, step: int) -> None:
        """Once more at the end, on everything that was recorded."""
        self.restart()
        if self._next < float("inf"):
            self._diagnose()
            self._report_all(step)

    def restart(self) -> None:
        """What is being looked for is about steps that are given up."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _diagnose(self) -> None:
        begun = time.thread_time()
        try:
            self._record.wait_until_written()
            self._result = diagnose(self._folder.path)
        except Exception as error:
            self._result = error
        self._next = time.monotonic() + max(MIN_SECONDS_BETWEEN, (time.thread_time() - begun) / MAX_TIME_SHARE)

    def _report_all(self, step: int) -> None:
        result, self._result = self._result, []
        if isinstance(result, Exception):
            self._say(f"The diagnosis failed ({type(result).__name__}: {result}); training continues without it.")
            self._next = float("inf")
            return
        new = [finding for finding in result if self._is_new(finding)]
        for finding in new:
            self._report(step, finding)
        if self._on_finding is not None:
            for finding in new:
                self._on_finding(finding)

    def _is_new(self, finding: Finding) -> bool:
        if finding.severity == "info":
            return False
        if (before := self._reported.get(finding.code)) is None:
            return finding.over is None
        is_worse = ORDER.index(finding.severity) < ORDER.index(before.severity)
        return (finding.over is None) != (before.over is None) or (finding.over is None and is_worse)

    def _report(self, step: int, finding: Finding) -> None:
        self._reported[finding.code] = finding
        self._record.finding(step, finding)
        if finding.over is not None:
            self._say(f"{finding.code} {finding.cause} is over since step {finding.over:,}.")
        else:
            self._say(
                f"{finding.severity.capitalize()} {finding.code} {finding.cause}: {finding.summary} {finding.fix.text}"
            )
            self._folder.update_status(last_finding=finding.cause)
