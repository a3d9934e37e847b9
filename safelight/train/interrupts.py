"""Signals: the first asks the loop to finish its step and save, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

PREEMPTED = 75  # EX_TEMPFAIL: run me again
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While it is entered, SIGINT and SIGTERM only leave a note; the handlers from before come back after."""

    def __init__(self) -> None:
        self.received: str | None = None
        self.exit_code = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received is not None:
            os._exit(128 + number)  # asked twice: now. Every file on disk is whole at every moment.
        self.received = signal.Signals(number).name
        self.exit_code = 128 + number if number == signal.SIGINT else PREEMPTED
