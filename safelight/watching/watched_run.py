"""The folder and the record of a loop that is not ours; a watch and a tracker may share them."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from safelight import __version__
from safelight.errors import UsageError
from safelight.files import make_directories
from safelight.observing.recorder import Recorder, open_record
from safelight.pages.report.html import write_report
from safelight.record.sinks import chosen_loggers
from safelight.run import HEARTBEAT_SECONDS, RunFolder, free_name, point_latest
from safelight.watching.logged_values import LAST_STEP
from safelight.words import short_path


class WatchedRun:
    """Open from `step` on: what was recorded from there is replaced. `is_captured`: a script that passes nothing."""

    def __init__(
        self,
        run: str | Path | None,
        step: int,
        say: Callable[[str], None],
        *,
        steps: int | None = None,
        loggers: str | Sequence[str] = (),
        is_captured: bool = False,
    ) -> None:
        step, steps = whole("step", step), None if steps is None else whole("steps", steps)
        loggers = chosen_loggers(loggers)
        self.folder = _open_folder(run, step)
        self.record = Recorder(*open_record(self.folder, step, say, loggers=loggers))
        self._beat, self._open, self._say, self.steps = 0.0, True, say, steps
        self._place, self._is_gone = identity(self.folder.path), False
        facts = {"steps": steps} if steps is not None else {}
        facts |= {"captured": True} if is_captured else {}
        self.folder.update_status(
            status="training", step=step, kind="watched", versions={"safelight": __version__}, **facts
        )

    def beat(self, step: int) -> None:
        """Reports now and then that the loop is alive."""
        if time.monotonic() - self._beat > HEARTBEAT_SECONDS:
            self._beat = time.monotonic()
            self._follow(step)
            self.note(step=step)

    def write_report(self, out: str | Path | None = None) -> Path:
        return write_report(self.folder, None if out is None else Path(out))

    def close(self, **facts: Any) -> None:
        if self._open:
            self._open = False
            self.record.close()
            if identity(self.folder.path) != self._place and not self._is_gone:
                self._say(f"The run folder {short_path(self.folder.path)} is gone, and what was recorded with it.")
            self.note(**{"status": "finished"} | facts)

    def _follow(self, step: int) -> None:
        """A folder that is deleted, moved or replaced under the loop is made again where it can be, and the record
        begins again in it. The loop goes on in any case."""
        if identity(self.folder.path) == self._place:
            return
        if not self._is_gone:
            self._is_gone = True
            place = short_path(self.folder.path)
            self._say(f"The run folder {place} is gone, and what was recorded with it. The loop goes on.")
        try:
            make_directories(self.folder.path)
        except OSError:  # nothing can be written: tried again with the next sign of life
            return
        if identity(self.folder.path) is None:  # a file has its name
            return
        self._place, self._is_gone = identity(self.folder.path), False
        self.record.begin_again(open_record(self.folder, step, self._say)[0])
        self.note(status="training", step=step, kind="watched", versions={"safelight": __version__})
        self._say(f"The record begins again at step {step} in {short_path(self.folder.path)}.")

    def note(self, **facts: Any) -> None:
        """In run.json, as far as that can be written."""
        with suppress(OSError):
            self.folder.update_status(**facts)


def identity(path: Path) -> tuple[int, int] | None:
    """What stands at a path; None if there is no folder."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def crashed(error: BaseException) -> dict[str, str]:
    """For run.json."""
    return {"status": "crashed", "error": f"{type(error).__name__}: {error}"}


def whole(name: str, value: Any) -> int:
    """A number of updates."""
    try:
        if not isinstance(value, str) and value == int(value) and 0 <= value <= LAST_STEP:
            return int(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise UsageError(f"{name} is {value!r:.60}. Use a whole number of updates from 0 on.")


def _named(run: Any) -> Path:
    if not isinstance(run, str | os.PathLike) or not os.fspath(run) or "\0" in str(run):
        raise UsageError(f"run is {run!r:.60}. Name a folder, such as runs/mine, or leave it out.")
    return Path(run)


def _open_folder(run: str | Path | None, step: int) -> RunFolder:
    named = free_name(Path("runs"), "watch") if run is None else _named(run)
    folder = RunFolder(named.absolute())  # it stays where it is when the loop goes to another folder
    if step == 0 and os.path.lexists(folder.record):
        raise UsageError(
            f"{short_path(folder.path)} already holds a record. To continue it, say from where: watch(…, step=N). Or "
            "choose another run."
        )
    try:
        make_directories(folder.path)
    except OSError as error:
        raise UsageError(
            f"The run folder {short_path(folder.path)} cannot be made: {error.strerror}. Choose another run."
        ) from error
    point_latest(folder)
    return folder
