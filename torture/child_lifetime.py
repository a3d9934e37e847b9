"""Children that do not outlive their parent: a suite that is stopped leaves nothing behind that trains on."""

from __future__ import annotations

import ctypes
import os
import signal

DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def die_with(parent: int) -> None:
    """Called in a forked child; on Linux only."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before it could be told
            os._exit(1)
