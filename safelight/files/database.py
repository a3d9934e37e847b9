"""SQLite files that may come from anywhere: plain files of this folder alone, with tables and no programs in them."""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
from collections.abc import Callable, Container
from pathlib import Path

from safelight.errors import RecordError
from safelight.files.disk import DISK, Disk, status_of
from safelight.files.reading import open_plain, open_regular, read_chunks
from safelight.files.writing import replace_atomically

BESIDE = ("-wal", "-journal", "-shm")
JOURNAL_END = bytes.fromhex("d9d505f920a163d7")  # at the end of a journal that names another file (a super-journal)
PROGRAMS = ("CHECK", "GENERATED", "REFERENCES", "COLLATE", "DEFAULT")  # none of our tables has one


def require_plain(path: Path, disk: Disk = DISK) -> None:
    """RecordError unless the file and what SQLite keeps beside it are regular files, or not there."""
    for name in ("", *BESIDE):
        each = Path(f"{path}{name}")
        try:
            status = status_of(each, disk)
        except OSError as error:
            raise RecordError(f"{error.strerror or error}.") from error
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise RecordError(f"{each} is not a regular file (a link, a folder, a pipe or a device). Remove it.")


def prepare_for_writing(path: Path, disk: Disk, say: Callable[[str], None]) -> None:
    """Before SQLite opens a file for writing, which follows links, writes in place, and deletes the files that a
    journal names."""
    require_plain(path, disk)
    _set_aside_forged(Path(f"{path}-journal"), disk, say)
    for name in ("", *BESIDE):
        each = Path(f"{path}{name}")
        status = status_of(each, disk)
        if status is None or status.st_nlink == 1:
            continue
        if name == "-shm":  # SQLite makes it again
            disk.unlink(each)
        else:  # the same file has another name, as in a backup made by `cp -al`: that one stays as it is
            descriptor, size = open_regular(each, disk)
            try:
                replace_atomically(each, map(memoryview, read_chunks(descriptor, size)), size, disk)
            finally:
                os.close(descriptor)


def _set_aside_forged(journal: Path, disk: Disk, say: Callable[[str], None]) -> None:
    """We never write a journal that names another file."""
    if status_of(journal, disk) is None:
        return
    with open_plain(journal, disk) as (descriptor, size):
        end = os.pread(descriptor, len(JOURNAL_END), max(0, size - len(JOURNAL_END)))
    if end == JOURNAL_END:
        aside = journal.with_name(f".foreign-{journal.name}-{secrets.token_hex(4)}")
        disk.rename(journal, aside)
        say(f"{journal} names other files, which no journal of Safelight does. It was set aside as {aside.name}.")


def refuse_programs(database: sqlite3.Connection, path: Path, tables: Container[str] | None = None) -> None:
    """RecordError unless the schema is tables, of these names, and the indexes that SQLite makes for their keys. A
    trigger, a view, a virtual table or an expression could compute anything, without an end."""
    for kind, name, statement in database.execute("SELECT type, name, sql FROM main.sqlite_schema").fetchall():
        if kind == "index" and statement is None:
            continue
        words = str(statement).upper()
        plain = kind == "table" and words.startswith("CREATE TABLE") and not any(word in words for word in PROGRAMS)
        if str(name).startswith("sqlite_"):
            plain = plain or kind == "table"
        elif tables is not None and name not in tables:
            plain = False
        if not plain:
            raise RecordError(
                f"{path} holds a {kind} {str(name)!r:.60} that is not one of Safelight's. It was not written to: it "
                "belongs to another program, or was made to run something. Move it away."
            )
