"""What processes that write one checkpoint together report to each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from safelight.checkpoints.manifest import Entry
from safelight.errors import CheckpointError
from safelight.processes.group import ProcessGroup

ATTEMPTS = 2  # of every save, on all processes alike


class SaveCoordinator:
    """Used by the threads that save. Both sides count attempts. Of one process alone, everything is trivial."""

    def __init__(self, group: ProcessGroup | None = None, what: str = "") -> None:
        """`what`: which of several that run at the same time."""
        self._group, self._what, self._attempt = group or ProcessGroup(), what, 0
        self.size = self._group.size

    # --- the first process ----------------------------------------------------------------------------------------

    def announce(self, name: str) -> None:
        """The folder is there for the others to write into."""
        self._group.post(self._key("folder"), {"name": name})

    def collect(self) -> list[Entry]:
        """Waits until none of the others writes any more, each file durable and read back; fails where one of them
        did."""
        reports = [self._group.wait_for_note(self._key(rank)) for rank in range(1, self.size)]
        for rank, each in enumerate(reports, 1):
            if each["error"] is not None:
                raise CheckpointError(f"process {rank}: {each['error']}")
        return [Entry(**entry) for each in reports for entry in each["entries"]]

    def conclude(self, error: str | None) -> None:
        """The checkpoint is there for good, or this attempt is over."""
        self._group.post(self._key("end"), {"error": error})
        self._attempt += 1

    @contextmanager
    def concluding_failures(self, attempts: int = 1) -> Iterator[None]:
        """An error inside ends so many attempts for all processes."""
        try:
            yield
        except Exception as error:
            for _ in range(attempts):
                self.conclude(str(error))
            raise

    # --- the others -----------------------------------------------------------------------------------------------

    def wait_for_folder(self) -> str | None:
        """The folder to write into; None if the first process failed before there was one."""
        return self._group.wait_for_note(self._key("folder"), self._key("end")).get("name")

    def report(self, entries: list[Entry], error: str | None = None) -> None:
        self._group.post(self._key(self._group.rank), {"entries": [asdict(entry) for entry in entries], "error": error})

    def wait_for_end(self) -> bool:
        """Whether the checkpoint is there."""
        error = self._group.wait_for_note(self._key("end"))["error"]
        self._attempt += 1
        return error is None

    @property
    def is_broken(self) -> bool:
        """Whether one of them is gone, and no other attempt can end better."""
        return self._group.is_broken

    def _key(self, word: str | int) -> str:
        return f"{self._what}/{self._attempt}/{word}"
