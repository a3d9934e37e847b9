"""The sorted list of a pile's files, on disk: a million names take no memory, and sort the same everywhere."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from safelight.data.decode import Hope
from safelight.data.sources import SourceFile

SCHEMA = """
CREATE TEMP TABLE entry (name BLOB PRIMARY KEY, size INTEGER, modified INTEGER, label BLOB) WITHOUT ROWID;
CREATE TABLE kept (row INTEGER PRIMARY KEY, name BLOB UNIQUE, size INTEGER, modified INTEGER);
CREATE TABLE rejected (name BLOB PRIMARY KEY, reason TEXT, hope TEXT) WITHOUT ROWID;
"""
PAGES_KILOBYTES = 512  # of memory for each of the two databases; the rest is on disk


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry, and the row it has in an earlier cache if it has not changed since."""

    entry: SourceFile
    earlier: int | None


def digest(entries: Iterable[SourceFile]) -> str:
    """The same for the same entries in any order: hashes are added, so nothing has to be sorted or kept."""
    total = count = 0
    for entry in entries:
        words = (
            f"{entry.size}/{entry.modified}/".encode() + os.fsencode(entry.name) + b"\0" + (_blob(entry.label) or b"")
        )
        total += int.from_bytes(hashlib.blake2b(words, digest_size=32).digest(), "little")
        count += 1
    return f"{count}:{total % 2**256:064x}"


class Listing:
    """Written once while images are prepared; afterwards it knows the name of every row and every rejected file."""

    def __init__(self, path: Path) -> None:
        # The cache is still being built: durability comes from the commit of its folder.
        self._database = sqlite3.connect(path, isolation_level=None, uri=True)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.executescript(SCHEMA)
        for part in ("main", "temp"):
            self._database.execute(f"PRAGMA {part}.cache_size = -{PAGES_KILOBYTES}")
        self._database.execute("BEGIN")

    def fill(self, entries: Iterable[SourceFile]) -> int:
        rows = ((os.fsencode(e.name), e.size, e.modified, _blob(e.label)) for e in entries)
        # The same name twice, as a zip may have it: the last one counts, as it does when unpacking.
        self._database.executemany("INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?)", rows)
        return self._database.execute("SELECT count(*) FROM entry").fetchone()[0]

    def labels(self) -> list[str]:
        found = self._database.execute("SELECT DISTINCT label FROM entry WHERE label IS NOT NULL")
        return sorted(os.fsdecode(label) for (label,) in found)

    def entries(self, earlier: Path | None = None) -> Iterator[Listed]:
        """In the order of their names' bytes, each with its row in the list of an earlier cache."""
        row, join = "NULL", ""
        if earlier is not None:
            self._database.execute("COMMIT")
            self._database.execute("ATTACH ? AS earlier", (_read_only(earlier),))
            self._database.execute("BEGIN")
            row = "old.row"
            same = " AND ".join(f"old.{column} = e.{column}" for column in ("name", "size", "modified"))
            join = f"LEFT JOIN earlier.kept AS old ON {same}"
        cursor = self._database.cursor()
        query = f"SELECT e.name, e.size, e.modified, e.label, {row} FROM temp.entry AS e {join} ORDER BY e.name"
        for name, size, modified, label, found in cursor.execute(query):
            yield Listed(SourceFile(os.fsdecode(name), size, modified, _text(label)), found)

    def keep(self, row: int, entry: SourceFile) -> None:
        values = (row, os.fsencode(entry.name), entry.size, entry.modified)
        self._database.execute("INSERT INTO main.kept VALUES (?, ?, ?, ?)", values)

    def reject(self, name: str, reason: str, hope: Hope) -> None:
        values = (os.fsencode(name), reason, hope)
        self._database.execute("INSERT OR REPLACE INTO main.rejected VALUES (?, ?, ?)", values)

    def commit(self) -> None:
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()


class Names:
    """The name of every row, looked up on access."""

    def __init__(self, path: Path) -> None:
        # Read by any thread; SQLite itself serialises.
        self._database = sqlite3.connect(_read_only(path), uri=True, check_same_thread=False)

    def __getitem__(self, row: int) -> str:
        found = self._database.execute("SELECT name FROM kept WHERE row = ?", (int(row),)).fetchone()
        if found is None:
            raise IndexError(row)
        return os.fsdecode(found[0])

    def __len__(self) -> int:
        return self._database.execute("SELECT count(*) FROM kept").fetchone()[0]

    def __iter__(self) -> Iterator[str]:
        for (name,) in self._database.execute("SELECT name FROM kept ORDER BY row"):
            yield os.fsdecode(name)

    def rejected(self) -> Iterator[tuple[str, str, Hope]]:
        """(name, reason, when it may be tried again), sorted."""
        for name, reason, hope in self._database.execute("SELECT name, reason, hope FROM rejected ORDER BY name"):
            yield os.fsdecode(name), reason, hope


def _read_only(path: Path) -> str:
    return f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1"


def _blob(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def _text(blob: bytes | None) -> str | None:
    return None if blob is None else os.fsdecode(blob)
