"""A checkpoint that several processes write together: the part of a process that is not the first."""

from __future__ import annotations

import threading
from pathlib import Path

from safelight.checkpoints import manifest
from safelight.checkpoints.coordinator import ATTEMPTS, SaveCoordinator
from safelight.checkpoints.manifest import Entry
from safelight.checkpoints.snapshot import Snapshot, prepare
from safelight.checkpoints.writer import SilentWriter, write_own
from safelight.errors import ProcessLost
from safelight.files import DISK, Disk


class PartWriter(SilentWriter):
    """Writes the files of its own process. It reports nothing to the user and deletes nothing: the first one does."""

    def __init__(self, folder: Path, coordinator: SaveCoordinator, disk: Disk = DISK) -> None:
        super().__init__()
        self._folder, self._coordinator, self._disk = folder, coordinator, disk
        self._thread: threading.Thread | None = None

    def submit(self, snapshot: Snapshot, best: int | None, safe: int | None = None) -> bool:
        self.wait()  # the first process is done with the last one, so this takes but a moment
        self._start(snapshot, best, safe)
        return True

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _save(self, snapshot: Snapshot, best: int | None, safe: int | None) -> None:
        try:
            for _ in range(ATTEMPTS):
                if (name := self._coordinator.wait_for_folder()) is not None:
                    self._coordinator.report(*self._write_part(self._folder / name, snapshot))
                if self._coordinator.wait_for_end():
                    self.last_saved = snapshot.step
                    return
        except ProcessLost:
            return  # the thread that trains finds out by itself
        self.failures += 1

    def _write_part(self, folder: Path, snapshot: Snapshot) -> tuple[list[Entry], str | None]:
        """Durable and read back, or why not."""
        try:
            entries = write_own(folder, prepare(snapshot), self._disk)
            self._disk.sync_directory(folder)
            for entry in entries:
                manifest.verify_file(folder, entry, self._disk)
        except Exception as error:  # by phase: a full disk has many faces
            return [], str(error)
        return entries, None
