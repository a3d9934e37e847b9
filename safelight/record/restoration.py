"""A record that is deleted or replaced while it is written: noticed, and written again from the open connection."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from safelight.files import Disk, move_aside, status_of, temporary_name
from safelight.files.database import BESIDE
from safelight.record.database import open_database

Identity = tuple[int, int] | None


class Presence:
    """Whether the files of a record are still those that were opened. SQLite itself writes on into a deleted file."""

    def __init__(self, path: Path) -> None:
        self.path, self._disk, self._places = path, Disk(path.parent), (path, Path(f"{path}-wal"))
        self._folder = _identity(path.parent)
        self._known: tuple[Identity, ...] = ()
        self.learn()

    def learn(self) -> None:
        """What stands there now is ours."""
        self._known = tuple(map(_identity, self._places))

    def is_lost(self) -> bool:
        """Not where the whole folder went away: that is not for the record to say."""
        if _identity(self.path.parent) != self._folder:
            return False
        return any(known is not None and _identity(place) != known for known, place in self._pairs())

    def _pairs(self) -> list[tuple[Identity, Path]]:
        return list(zip(self._known, self._places, strict=True))

    def restore(self, database: sqlite3.Connection) -> sqlite3.Connection:
        """All that the connection still has, in a new file at the same place. What stands there is moved aside."""
        temporary = temporary_name(self.path)
        try:
            with contextlib.closing(sqlite3.connect(temporary)) as fresh:
                database.backup(fresh)
            database.close()
            for place in (self.path, *(Path(f"{self.path}{ending}") for ending in BESIDE)):
                status = status_of(place, self._disk)
                if status is not None and (status.st_dev, status.st_ino) not in self._known and place == self.path:
                    move_aside(place, self._disk)
                elif status is not None:
                    self._disk.unlink(place)
            self._disk.rename(temporary, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                self._disk.unlink(temporary)
            raise
        opened = open_database(self.path)
        self.learn()
        return opened


def _identity(path: Path) -> Identity:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
