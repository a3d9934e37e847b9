"""A thread that brings readings to the record when a loop makes no step for a while, or will never make one again."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

SECONDS = 0.5


class FlushTimer:
    """Calls a method every so often. Does not keep its object alive, and ends with it."""

    def __init__(self, method: Callable[[], Any]) -> None:
        self._ended = threading.Event()
        held = weakref.WeakMethod(method)
        self._thread = threading.Thread(target=_run, args=(held, self._ended), name="safelight-flush", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()


def _run(held: weakref.WeakMethod[Callable[[], Any]], ended: threading.Event) -> None:
    while not ended.wait(SECONDS):
        if (call := held()) is None:
            return
        call()
        del call
