"""The part of a step that is captured: a function mode and global hooks that come on, step aside and go off."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from safelight.capturing.lineage_mode import LineageMode
from safelight.capturing.mode_stack import push_below, remove
from safelight.capturing.module_calls import ModuleCalls
from safelight.capturing.trace import Trace


class CaptureWindow:
    """Looks at one thread of one process: a forked worker has a copy of it and no business with it, and another thread
    may train what it likes. `fail` is called outside of functions of torch."""

    def __init__(self, fail: Callable[[Exception], object]) -> None:
        self.trace = Trace()
        self._fail = fail
        self._mode = LineageMode(self.trace, self._keep_error)
        self._calls = ModuleCalls(self.trace, self._step_aside, self._keep_error, self._is_looking)
        self._process, self._thread = os.getpid(), threading.get_ident()
        self._error: Exception | None = None
        self.is_open = False
        self._aside = 0

    def open(self) -> None:
        if not self.is_open and self.is_here:
            self.is_open = True
            self._calls.attach()
            push_below(self._mode)

    def close(self) -> None:
        """What was seen is let go."""
        if self.is_open:
            self.is_open = False
            remove(self._mode)
            self._calls.detach()
        self.trace.clear()

    @property
    def is_here(self) -> bool:
        return threading.get_ident() == self._thread and os.getpid() == self._process

    @property
    def is_aside(self) -> bool:
        return self._aside > 0

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What happens meanwhile is not a part of the step: backward passes, batches being made, our own work."""
        self._aside += 1
        self._step_aside(True)
        try:
            yield
        finally:
            self._aside -= 1
            if not self._aside:
                self._step_aside(False)

    def settle(self) -> None:
        """Hands over a fault that came inside of a function of torch: there the mode is not on the stack, and torch
        puts it back."""
        if self._error is not None and not self._mode.depth:
            error, self._error = self._error, None
            self._fail(error)

    def _keep_error(self, error: Exception) -> None:
        self._mode.is_open, self._error = False, error
        self.settle()

    def _is_looking(self) -> bool:
        return self.is_open and not self._aside and self.is_here

    def _step_aside(self, begins: bool) -> None:
        if self.is_open and not self._mode.depth:
            remove(self._mode) if begins else push_below(self._mode)
