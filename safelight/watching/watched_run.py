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
from safelight.origin import command, commands_with, origin
from safelight.pages.report.html import write_report
from safelight.record.sinks import chosen_loggers
from safelight.run import HEARTBEAT_SECONDS, RunFolder, free_name, point_latest


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
        loggers = chosen_loggers(loggers)
        self.folder = _open_folder(run, step)
        self.record = Recorder(*open_record(self.folder, step, say, loggers=loggers))
        self._beat, self._open, self._say, self.steps = 0.0, True, say, steps
        self._place, self._is_gone = identity(self.folder.path), False
        facts: dict[str, Any] = {} if steps is None else {"steps": steps}
        facts |= {"captured": True} if is_captured else {}
        before = self.folder.status() if step else {}
        facts["origin"] = before.get("origin") or origin(is_captured=is_captured)
        facts["commands"] = commands_with(before.get("commands"), command(is_captured=is_captured))
        facts["created"] = before.get("created", time.time())
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
        path = self.folder.report_page if out is None else Path(out)
        write_report(self.folder, path)
        return path

    def close(self, **facts: Any) -> None:
        if self._open:
            self._open = False
            self.record.close()
            if identity(self.folder.path) != self._place and not self._is_gone:
                self._say(f"The run folder {self.folder.path} was deleted or moved, and the record with it.")
            self.note(**{"status": "finished"} | facts)

    def _follow(self, step: int) -> None:
        """Creates a run folder that was deleted, moved or replaced again where possible, with a new record. The loop
        continues in any case."""
        if identity(self.folder.path) == self._place:
            return
        if not self._is_gone:
            self._is_gone = True
            self._say(
                f"The run folder {self.folder.path} was deleted or moved, and the record with it. The loop continues."
            )
        try:
            make_directories(self.folder.path)
        except OSError:  # nothing can be written: tried again with the next heartbeat
            return
        if identity(self.folder.path) is None:  # a file has its name
            return
        self._place, self._is_gone = identity(self.folder.path), False
        self.record.begin_again(open_record(self.folder, step, self._say)[0])
        self.note(status="training", step=step, kind="watched", versions={"safelight": __version__})
        self._say(f"The record begins again at step {step} in {self.folder.path}.")

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


def _open_folder(run: str | Path | None, step: int) -> RunFolder:
    folder = RunFolder(Path(run) if run is not None else free_name(Path("runs"), "watch"))
    if step == 0 and folder.record.exists():
        raise UsageError(
            f"{folder.path} already holds a record. To continue it, say from where: watch(…, step=N). Or choose "
            "another run."
        )
    try:
        make_directories(folder.path)
    except OSError as error:
        raise UsageError(
            f"The run folder {folder.path} cannot be made: {error.strerror}. Choose another run."
        ) from error
    point_latest(folder)
    return folder
