"""The sorted list of a source's files, on disk: a million names take no memory, and sort the same everywhere."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from safelight.data.decode import Retry
from safelight.data.sources import SourceFile
from safelight.files import DISK, Disk
from safelight.files.database import refuse_programs, require_plain

SCHEMA = """
CREATE TEMP TABLE entry
  (name BLOB PRIMARY KEY, size INTEGER, modified INTEGER, label BLOB, earlier INTEGER) WITHOUT ROWID;
CREATE TABLE kept (row INTEGER PRIMARY KEY, name BLOB UNIQUE, size INTEGER, modified INTEGER);
CREATE TABLE rejected (name BLOB PRIMARY KEY, reason TEXT, hope TEXT) WITHOUT ROWID;
"""
PAGES_KILOBYTES = 512  # of memory for each of the two databases; the rest is on disk


def digest(entries: Iterable[SourceFile]) -> str:
    """The same for the same entries in any order: hashes are added, so nothing has to be sorted or kept."""
    total = count = 0
    for entry in entries:
        words = f"{entry.size}/{entry.modified}/".encode() + os.fsencode(f"{entry.name}\0{entry.label or ''}")
        total += int.from_bytes(hashlib.blake2b(words, digest_size=32).digest(), "little")
        count += 1
    return f"{count}:{total % 2**256:064x}"


class Listing:
    """Written once while images are prepared; afterwards it knows the name of every row and every rejected file."""

    def __init__(self, path: Path, earlier: Path | None = None) -> None:
        """`earlier`: the list of an earlier cache of the same source."""
        # The cache is still being built: durability comes from the commit of its folder.
        self._database = sqlite3.connect(path, isolation_level=None, uri=True)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.executescript(SCHEMA)
        for part in ("main", "temp"):
            self._database.execute(f"PRAGMA {part}.cache_size = -{PAGES_KILOBYTES}")
        self._earlier = "NULL"
        if earlier is not None:
            self._database.execute("ATTACH ? AS earlier", (_read_only(earlier),))
            self._earlier = "(SELECT row FROM earlier.kept WHERE name = ?1 AND size = ?2 AND modified = ?3)"
        self._database.execute("BEGIN")

    def fill(self, entries: Iterable[SourceFile]) -> int:
        rows = ((os.fsencode(e.name), e.size, e.modified, e.label and os.fsencode(e.label)) for e in entries)
        # The same name twice, as a zip may have it: the last one counts, as it does when unpacking.
        self._database.executemany(f"INSERT OR REPLACE INTO entry VALUES (?1, ?2, ?3, ?4, {self._earlier})", rows)
        return self._database.execute("SELECT count(*) FROM entry").fetchone()[0]

    def labels(self) -> list[str]:
        found = self._database.execute("SELECT DISTINCT label FROM entry WHERE label IS NOT NULL")
        return sorted(os.fsdecode(label) for (label,) in found)

    def entries(self) -> Iterator[tuple[SourceFile, int | None]]:
        """In the order of their names' bytes, each with the row it has in the earlier cache."""
        for name, size, modified, label, row in self._database.execute("SELECT * FROM entry ORDER BY name"):
            yield SourceFile(os.fsdecode(name), size, modified, label and os.fsdecode(label)), row

    def new_names(self) -> Iterator[str]:
        """The names of the entries that the earlier cache does not have, in the same order."""
        for (name,) in self._database.execute("SELECT name FROM entry WHERE earlier IS NULL ORDER BY name"):
            yield os.fsdecode(name)

    def keep(self, row: int, entry: SourceFile) -> None:
        values = (row, os.fsencode(entry.name), entry.size, entry.modified)
        self._database.execute("INSERT INTO main.kept VALUES (?, ?, ?, ?)", values)

    def reject(self, name: str, reason: str, retry: Retry) -> None:
        values = (os.fsencode(name), reason, retry)
        self._database.execute("INSERT OR REPLACE INTO main.rejected VALUES (?, ?, ?)", values)

    def commit(self) -> None:
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()


class Names:
    """The name of every row, looked up on access."""

    def __init__(self, path: Path, disk: Disk = DISK) -> None:
        # Read by any thread; SQLite itself serialises.
        require_plain(path, disk)
        self._database = sqlite3.connect(_read_only(path), uri=True, check_same_thread=False)
        self._database.execute("PRAGMA trusted_schema = OFF")
        refuse_programs(self._database, path)

    def __getitem__(self, row: int) -> str:
        found = self._database.execute("SELECT name FROM kept WHERE row = ?", (int(row),)).fetchone()
        if found is None:
            raise IndexError(row)
        return os.fsdecode(found[0])

    def rejected(self) -> Iterator[tuple[str, str, Retry]]:
        """(name, reason, when it may be tried again), sorted."""
        for name, reason, retry in self._database.execute("SELECT name, reason, hope FROM rejected ORDER BY name"):
            yield os.fsdecode(name), reason, retry


def _read_only(path: Path) -> str:
    return f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1"
