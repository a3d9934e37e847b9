"""The folder and the record of a loop that is not ours; a watch and a tracker may share them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safelight import __version__
from safelight.errors import UsageError
from safelight.record.store import RecordWriter
from safelight.run import HEARTBEAT_SECONDS, RunFolder, free_name, point_latest


class WatchedRun:
    """Open from `step` on: what was recorded from there is replaced."""

    def __init__(self, run: str | Path | None, step: int, say: Callable[[str], None]) -> None:
        self.folder = _open_folder(run, step)
        self.record = RecordWriter(self.folder.record, from_step=step, say=say)
        self._beat, self._open = 0.0, True
        self.folder.report(status="training", step=step, kind="watched", versions={"safelight": __version__})

    def beat(self, step: int) -> None:
        """Tells now and then that the loop is alive."""
        if time.monotonic() - self._beat > HEARTBEAT_SECONDS:
            self._beat = time.monotonic()
            self.folder.report(step=step)

    def close(self, **facts: Any) -> None:
        if self._open:
            self._open = False
            self.record.close()
            self.folder.report(**{"status": "finished"} | facts)


def _open_folder(run: str | Path | None, step: int) -> RunFolder:
    folder = RunFolder(Path(run) if run is not None else free_name(Path("runs"), "watch"))
    if step == 0 and folder.record.exists():
        raise UsageError(
            f"{folder.path} already holds a record. To carry it on, say from where: watch(…, step=N). Or choose "
            "another run."
        )
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"The run folder {folder.path} cannot be made: {error.strerror}. Choose another run."
        ) from error
    point_latest(folder)
    return folder
