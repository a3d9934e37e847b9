"""Signals: the first asks the loop to finish its step and save, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

PREEMPTED = 75  # EX_TEMPFAIL: run me again
SIGNALS = (signal.SIGINT, signal.SIGTERM)
ECHO = 5.0  # seconds in which a launcher passes on a signal that all processes got anyway


def exit_code_of(number: int) -> int:
    return 128 + number if number == signal.SIGINT else PREEMPTED


class Interrupts:
    """While it is entered, SIGINT and SIGTERM only leave a note; the handlers from before come back after."""

    def __init__(self) -> None:
        self.number = 0  # of the signal that came, or 0
        self._came = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.number:
            if "TORCHELASTIC_RUN_ID" in os.environ and time.monotonic() - self._came < ECHO:
                return
            os._exit(128 + number)  # asked twice: now. Every file on disk is whole at every moment.
        self.number, self._came = number, time.monotonic()
