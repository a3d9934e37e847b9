"""A checkpoint that several processes write together: each its own files, and the first one the manifest of all."""

from __future__ import annotations

import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safelight.checkpoints import manifest
from safelight.checkpoints.manifest import Entry
from safelight.checkpoints.snapshot import Prepared, Snapshot, prepare
from safelight.checkpoints.writer import Kept, SilentWriter, Writer, commit, write_own
from safelight.errors import CheckpointError, ProcessLost
from safelight.files import DISK, Disk
from safelight.processes.group import ProcessGroup

ATTEMPTS = 2  # of every save, on all processes alike


class Relay:
    """What the processes report to each other about a save, from the threads that do it. Both sides count attempts."""

    def __init__(self, group: ProcessGroup, what: str) -> None:
        """`what`: which of several that run at the same time."""
        self._group, self._what, self._turn, self.count = group, what, 0, group.size

    # --- the first process ----------------------------------------------------------------------------------------

    def open(self, name: str) -> None:
        self._group.post(self._key("folder"), {"name": name})

    def collect(self) -> list[Entry]:
        # Of all of them, also where one has failed.
        reports = [self._group.wait_for_note(self._key(rank)) for rank in range(1, self.count)]
        for rank, each in enumerate(reports, 1):
            if each["error"] is not None:
                raise CheckpointError(f"process {rank}: {each['error']}")
        return [Entry(**entry) for each in reports for entry in each["entries"]]

    def conclude(self, error: str | None) -> None:
        """The checkpoint is there for good, or this attempt is over."""
        self._group.post(self._key("end"), {"error": error})
        self._turn += 1

    # --- the others -----------------------------------------------------------------------------------------------

    def join(self) -> str | None:
        """The folder to write into; None where the first process failed before there was one."""
        return self._group.wait_for_note(self._key("folder"), self._key("end")).get("name")

    def report(self, entries: list[Entry], error: str | None = None) -> None:
        self._group.post(self._key(self._group.rank), {"entries": [asdict(entry) for entry in entries], "error": error})

    def await_end(self) -> bool:
        """Whether the checkpoint is there."""
        error = self._group.wait_for_note(self._key("end"))["error"]
        self._turn += 1
        return error is None

    @property
    def is_broken(self) -> bool:
        """Whether one of them is gone, and no other attempt can end better."""
        return self._group.is_broken

    def _key(self, word: str | int) -> str:
        return f"{self._what}/{self._turn}/{word}"


class FirstWriter(Writer):
    """Of the process that writes the manifest."""

    def __init__(self, folder: Path, relay: Relay, **options: Any) -> None:
        """`options`: as those of `Writer`."""
        super().__init__(folder, **options)
        self._relay = relay

    def _prepare(self, snapshot: Snapshot) -> Prepared:
        try:
            return super()._prepare(snapshot)
        except Exception as error:
            for _ in range(ATTEMPTS):
                self._relay.conclude(str(error))
            raise

    def _commit(self, prepared: Prepared) -> None:
        try:
            commit(self._folder, prepared, self._disk, self._relay)
        except Exception as error:
            self._relay.conclude(str(error))
            raise
        self._relay.conclude(None)

    def _make_room(self, reason: str, kept: Kept) -> None:
        if not self._relay.is_broken:
            super()._make_room(reason, kept)


class PartWriter(SilentWriter):
    """Of the others: says nothing and deletes nothing, for the first one does."""

    def __init__(self, folder: Path, relay: Relay, disk: Disk = DISK) -> None:
        super().__init__()
        self._folder, self._relay, self._disk = folder, relay, disk
        self._thread: threading.Thread | None = None

    def submit(self, snapshot: Snapshot, best: int | None, safe: int | None = None) -> bool:
        self.wait()  # the first process is done with the last one, so this takes but a moment
        self._thread = threading.Thread(target=self._save, args=(snapshot, best, safe), name="safelight-checkpoint")
        self._thread.start()
        return True

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _save(self, snapshot: Snapshot, best: int | None, safe: int | None) -> None:
        try:
            for _ in range(ATTEMPTS):
                if (name := self._relay.join()) is not None:
                    self._relay.report(*self._take_part(self._folder / name, snapshot))
                if self._relay.await_end():
                    self.last_saved = snapshot.step
                    return
        except ProcessLost:
            return  # the thread that trains finds out by itself
        self.failures += 1

    def _take_part(self, folder: Path, snapshot: Snapshot) -> tuple[list[Entry], str | None]:
        """Durable and read back, or why not."""
        try:
            entries = write_own(folder, prepare(snapshot), self._disk)
            self._disk.sync_directory(folder)
            for entry in entries:
                manifest.verify_file(folder, entry, self._disk)
        except Exception as error:  # by phase: a full disk has many faces
            return [], str(error)
        return entries, None
