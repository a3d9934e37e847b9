"""Signals that end a run: the first one makes the loop finish its step and save, the second ends the process."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from types import FrameType
from typing import Any

PREEMPTED = 75  # EX_TEMPFAIL: run me again
# SIGHUP: the terminal is gone. SIGXCPU and SIGUSR1: a scheduler warns before it kills.
STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGXCPU", "SIGUSR1") if hasattr(signal, name)
)
ALWAYS = (signal.SIGINT, signal.SIGTERM)
LAUNCHER_GRACE = 30.0  # seconds from torchrun's SIGTERM to its SIGKILL, unless it was given others
ECHO = 5.0  # seconds in which a launcher forwards a stop signal that all processes got anyway


def exit_code_of(os_signal: int) -> int:
    return 128 + os_signal if os_signal == signal.SIGINT else PREEMPTED


def seconds_of_grace(grace: float | None) -> float:
    """From a stop signal to the kill. `grace`: as the settings have it; unset: that of torchrun, if it is there, which
    does not pass on its flag `--shutdown-timeout`."""
    if grace is not None:
        return grace
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return math.inf
    try:
        return float(os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", LAUNCHER_GRACE))
    except ValueError:
        return LAUNCHER_GRACE


def _is_ignored(os_signal: int) -> bool:
    """As `nohup` leaves SIGHUP: it stays so."""
    return signal.getsignal(os_signal) is signal.SIG_IGN


class Interrupts:
    """While it is entered, a stop signal is only remembered; the handlers from before come back after."""

    def __init__(self) -> None:
        self.os_signal = 0  # the number of the one that came, or 0
        self._came = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            wanted = [number for number in STOP_SIGNALS if number in ALWAYS or not _is_ignored(number)]
            self._before = {number: signal.signal(number, self._handle) for number in wanted}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set by Python

    def kill_moment(self, number: int, grace: float | None) -> float:
        """When this process is killed (time.monotonic), after one of the processes received this signal. `grace`: as
        the settings have it."""
        if number == signal.SIGINT and "TORCHELASTIC_RUN_ID" not in os.environ:
            return math.inf  # a person, who waits
        return (self._came if self.os_signal else time.monotonic()) + seconds_of_grace(grace)

    def _handle(self, os_signal: int, _: FrameType | None) -> None:
        if self.os_signal:
            if os_signal not in ALWAYS:
                return  # a terminal that closes sends several, and a limit of time one every second
            if "TORCHELASTIC_RUN_ID" in os.environ and time.monotonic() - self._came < ECHO:
                return
            os._exit(128 + os_signal)  # the second one: now. Every file on disk is whole at every moment.
        self.os_signal, self._came = os_signal, time.monotonic()
