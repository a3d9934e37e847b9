"""A training script that knows nothing of Safelight, under watch: `auto`, `captured`, `start_capture`."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safelight.diagnosis import Diagnosis, diagnose_run
from safelight.observing.live_diagnosis import OnFinding
from safelight.watching.loop import SilentWatch, Watch, print_to_stderr


class StopAfter(BaseException):
    """Raised out of the step of the optimizer, after as many updates as were asked for."""


class Captured:
    """What is seen of a script; it opens a watch as soon as a network and its optimizer are known."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.watch: Watch | SilentWatch | None = None
        self._finished = False

    @property
    def updates(self) -> int:
        return self.watch.updates if isinstance(self.watch, Watch) else 0

    @property
    def folder(self) -> Path | None:
        """Of the record; None before the watch is open."""
        return self.watch.folder.path if isinstance(self.watch, Watch) else None

    def recognised(self) -> list[str]:
        """What is known of the loop, one sentence each; what is not known is named as such."""
        return ["No training was seen: no network was called with gradients and then updated by an optimizer."]

    def diagnosis(self) -> Diagnosis | None:
        return None if self.folder is None else diagnose_run(self.folder)

    def finish(self, **facts: Any) -> None:
        """Takes every hook off and prints the verdict; once. `facts` go into run.json."""
        if self._finished:
            return
        self._finished = True
        if self.watch is not None:
            self.watch.close(**facts)


def start_capture(
    *,
    run: str | Path | None = None,
    steps: int | None = None,
    say: Callable[[str], None] | None = None,
    on_finding: OnFinding | None = None,
    stop_after: int | None = None,
    loggers: Sequence[str] = (),
) -> Captured:
    """Looks at whatever trains from now on in this process, until `finish`."""
    return Captured(say or print_to_stderr)


def auto(
    *,
    run: str | Path | None = None,
    steps: int | None = None,
    say: Callable[[str], None] | None = None,
    on_finding: OnFinding | None = None,
    stop_after: int | None = None,
    loggers: Sequence[str] = (),
) -> Captured:
    """One line at the top of a script or a notebook: what trains below it is watched until the process ends."""
    found = start_capture(run=run, steps=steps, say=say, on_finding=on_finding, stop_after=stop_after, loggers=loggers)
    atexit.register(found.finish)
    return found


@contextmanager
def captured(
    *,
    run: str | Path | None = None,
    steps: int | None = None,
    say: Callable[[str], None] | None = None,
    on_finding: OnFinding | None = None,
    stop_after: int | None = None,
    loggers: Sequence[str] = (),
) -> Iterator[Captured]:
    """What trains inside of the `with` is watched; with `stop_after` it ends after so many updates."""
    found = start_capture(run=run, steps=steps, say=say, on_finding=on_finding, stop_after=stop_after, loggers=loggers)
    try:
        yield found
    except StopAfter:
        pass
    finally:
        found.finish()
