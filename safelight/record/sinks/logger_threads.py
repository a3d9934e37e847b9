"""Carries batches to the loggers, each on a thread of its own, so that none of them can cost the training anything."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from safelight.record.sinks.batch import NotWanted, Sink, SinkBatch

MAX_WAITING_BATCHES = 256  # batches that may wait: minutes of training, a few MB
Opener = Callable[[], Sink]


class LoggerThreads:
    """One lane per logger: a slow one starves neither the training nor the other loggers."""

    def __init__(
        self, openers: Mapping[str, Opener], say: Callable[[str], None], *, most: int = MAX_WAITING_BATCHES
    ) -> None:
        self._lanes = [LoggerThread(name, opener, say, most) for name, opener in openers.items()]

    def put(self, batch: SinkBatch) -> None:
        """Never waits and never raises."""
        for lane in self._lanes:
            lane.put(batch)

    def close(self, seconds: float = 5) -> None:
        """Lets the loggers finish, all of them within `seconds`; slower ones are abandoned."""
        deadline = time.monotonic() + seconds
        for lane in self._lanes:
            lane.finish()
        for lane in self._lanes:
            lane.wait(deadline, seconds)


class LoggerThread:
    """One logger, its bounded queue and its thread: opening, writing and closing happen there."""

    def __init__(self, name: str, opener: Opener, say: Callable[[str], None], most: int) -> None:
        self.name, self.dropped = name, 0
        self._opener, self._say, self._most = opener, say, most
        self._waiting: deque[SinkBatch] = deque()
        self._changed = threading.Condition()
        self._over = False  # takes nothing more: closed, or switched off
        self._left_behind = False
        self._thread = threading.Thread(target=self._run, name=f"safelight-{name}", daemon=True)
        self._thread.start()

    def put(self, batch: SinkBatch) -> None:
        with self._changed:  # held by the other side for moments only, never while a logger works
            if self._over:
                return
            first_loss = len(self._waiting) == self._most and self.dropped == 0
            if len(self._waiting) == self._most:
                self._waiting.popleft()  # the oldest: a live view wants the newest
                self.dropped += 1
            self._waiting.append(batch)
            self._changed.notify()
        if first_loss:
            self._report(f"is too slow: {self._most} windows wait for it and the oldest are left out.")

    def finish(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()

    def wait(self, deadline: float, seconds: float) -> None:
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self.dropped:
            self._report(f"was too slow: {self.dropped} windows were left out. The record has them.")
        if self._thread.is_alive() and not self._left_behind:
            rest = len(self._waiting)
            self._report(f"did not finish within {seconds:g} s and is left behind, with {rest} windows unwritten.")
            self._left_behind = True
        self.dropped = 0

    def _run(self) -> None:
        sink = None
        try:
            sink = self._opener()
            while (batch := self._next()) is not None:
                sink.write(batch)
            closing, sink = sink, None
            closing.close()
        except NotWanted as reason:
            self._report(str(reason))
        except ModuleNotFoundError as error:
            self._report(
                f"needs the package {error.name}, which is not installed; the run goes on without it. "
                f"To have it: pip install 'safelight[{self.name}]'"
            )
        except BaseException as error:  # also SystemExit, which would end this thread in silence
            self._report(f"is switched off ({type(error).__name__}: {error}); the run goes on without it.")
        self._switch_off(sink)

    def _next(self) -> SinkBatch | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._over)
            return self._waiting.popleft() if self._waiting else None

    def _switch_off(self, broken: Sink | None) -> None:
        with self._changed:
            self._over = True
            self._waiting.clear()
        if broken is not None:
            with contextlib.suppress(BaseException):  # reported already; this only releases its resources
                broken.close()

    def _report(self, message: str) -> None:
        if not self._left_behind:  # the screen may be gone
            with contextlib.suppress(Exception):
                self._say(f"The logger {self.name} {message}")
