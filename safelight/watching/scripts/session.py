"""The watch inside of the script's own process: from its import of torch to its end."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.optim.optimizer as optimizers

from safelight.monitors.step_hooks import silence
from safelight.watching.auto import UPDATES_BEFORE_NOTICE, Captured, StopAfter
from safelight.watching.scripts.launch import Options
from safelight.watching.scripts.notes import Ending, Notes
from safelight.watching.scripts.tracebacks import hide_frames
from safelight.watching.watched_run import crashed

MAX_STOPS = 3  # times that a script which goes on is stopped
GRACE = 60.0  # seconds that a stopped script has for its own leaving
POLL_SECONDS = 0.2
PATIENCE = 5  # steps of optimizers for one update: there may be two of them, or none that trains a network


class ScriptSession:
    """Nothing that fails here may end the script, except the stop of a check."""

    def __init__(self, options: str, say: Callable[[str], None]) -> None:
        given = json.loads(options)
        self._options = Options(**{**given, "loggers": tuple(given["loggers"])})
        self._write, self._process = say, os.getpid()
        self._stop_after = self._options.steps if self._options.handover else None
        self._said: list[str] = []
        self._announced = self._is_registered = False
        self._calls = self._times_stopped = 0  # of any optimizer
        self._over = threading.Event()
        # Before the hooks of the capture: the last update of a check leaves through those.
        self._before = optimizers.register_optimizer_step_pre_hook(self._before_update)
        self._captured = Captured(
            run=self._options.run,
            steps=None if self._stop_after else self._options.steps,
            say=self._say,
            stop_after=self._stop_after,
            loggers=self._options.loggers,
        ).start()
        self._after = optimizers.register_optimizer_step_post_hook(self._after_update)
        hide_frames()
        if self._stop_after is not None:
            threading.Thread(target=self._wait_for_end, name="safelight-stop", daemon=True).start()

    def end(self) -> None:
        """When python leaves; once."""
        if self._over.is_set() or os.getpid() != self._process:
            return
        self._over.set()
        silence([self._before, self._after])
        try:
            self._announce()
            error = getattr(sys, "last_value", None)
            facts = {} if error is None else crashed(error)
            self._captured.finish(**({"status": "ended"} | facts if self._stop_after is not None else facts))
        except Exception as error:
            self._say(f"the end of the watch failed ({type(error).__name__}: {error}).")
        if self._options.handover is not None:
            self._hand_over("stopped" if self._is_stopped else "itself")
        elif self._captured.watch is None:
            self._say(f"no training was seen: {unseen(self._calls)}")

    @property
    def _is_stopped(self) -> bool:
        """After as many updates as were asked for; where none is recognised as one, after some more."""
        return self._stop_after is not None and (
            self._captured.updates >= self._stop_after or self._calls > PATIENCE * self._stop_after
        )

    def _say(self, text: str) -> None:
        if os.getpid() != self._process:
            return
        self._said.append(text)
        if not self._options.quiet and self._options.handover is None:
            self._write(text)

    def _before_update(self, *_: Any) -> None:
        """An update after the last one: the script caught what should have ended it."""
        if os.getpid() != self._process:
            return
        self._calls += 1
        if not self._is_stopped:
            return
        self._times_stopped += 1
        if self._times_stopped > MAX_STOPS:
            self._leave("swallowed")
        raise StopAfter

    def _after_update(self, *_: Any) -> None:
        if os.getpid() != self._process:
            return
        if self._captured.watch is not None and not self._is_registered:
            self._is_registered = True
            atexit.register(self.end)  # the watch closes itself at the end, too: this one comes first
        if self._captured.updates >= UPDATES_BEFORE_NOTICE:
            silence([self._after])
            self._announce()

    def _announce(self) -> None:
        """Once: what was recognised, and where to look at it."""
        if self._announced or self._captured.folder is None:
            return
        self._announced = True
        for line in self._captured.recognised():
            self._say(line)
        self._say(f"the page: safelight dashboard {self._captured.folder}")

    def _wait_for_end(self) -> None:
        """A script may do much when it is stopped, or wait for ever in another thread: it has a while for that."""
        while not self._is_stopped:
            if self._over.wait(POLL_SECONDS):
                return
        if not self._over.wait(GRACE):
            self._leave("late")

    def _leave(self, ending: Ending) -> None:
        """Past everything of the script."""
        self.end()
        self._hand_over(ending)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(0)

    def _hand_over(self, ending: Ending) -> None:
        assert self._options.handover is not None
        recognised = tuple(self._captured.recognised()) if self._captured.updates else (unseen(self._calls),)
        notes = Notes(self._captured.updates, ending, recognised, tuple(self._said), self._captured.is_known)
        notes.write(Path(self._options.handover))


def unseen(calls: int) -> str:
    """Why nothing was, by how often optimizers were called."""
    if calls:
        return (
            f"optimizers made {calls} steps, but none of them holds the parameters of a network that was called with "
            "gradients. Was the network replaced, copied or wrapped after its optimizer was made?"
        )
    return "no optimizer of torch made an update."
