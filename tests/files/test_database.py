"""A record from anywhere: nothing in it runs, nothing beside it deletes, and its other names keep their bytes."""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from pathlib import Path

import pytest

from safelight.errors import RecordError
from safelight.files.database import JOURNAL_END, refuse_programs
from safelight.record.database import open_database
from safelight.record.history import open_history
from safelight.record.store import RecordWriter


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "record.sqlite"
    path.parent.mkdir()
    writer = RecordWriter(path, from_step=0, say=pytest.fail)
    writer.add(0, {"loss/mean": 1.0})
    writer.close()
    return path


def change(path: Path, statements: str) -> None:
    with sqlite3.connect(path) as database:
        database.executescript(statements)
    database.close()


@pytest.mark.parametrize(
    ("statements", "named"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM reading; END", "trigger 't'"),
        ("CREATE TEMP TABLE x (a); CREATE VIEW v AS SELECT 1", "view 'v'"),
        ("CREATE TABLE notes (text TEXT)", "table 'notes'"),
        ("CREATE INDEX i ON event (length(facts))", "index 'i'"),
        ("DROP TABLE finding; CREATE VIRTUAL TABLE finding USING fts5(code)", "table 'finding'"),
        ("DROP TABLE finding; CREATE TABLE finding (id INTEGER PRIMARY KEY, step INTEGER CHECK (step > 1))", "finding"),
        ("DROP TABLE finding; CREATE TABLE finding (code TEXT)", "finding"),
        ("PRAGMA user_version = 0", "table 'reading'"),  # of another program
    ],
)
def test_a_record_with_anything_but_our_tables_is_not_written_to(record: Path, statements: str, named: str) -> None:
    change(record, statements)
    before, said = record.read_bytes(), list[str]()
    with pytest.raises(RecordError, match=named):
        open_database(record)
    writer = RecordWriter(record, from_step=0, say=said.append)
    writer.add(1, {"loss/mean": 2.0})
    writer.close()
    assert record.read_bytes() == before
    assert len(said) == 1
    assert "the run goes on without it" in said[0]


def test_our_own_tables_are_accepted(record: Path) -> None:
    with open_database(record) as database:
        refuse_programs(database, record)
    database.close()


def forged_journal(victim: Path, pages: int) -> bytes:
    """A rollback journal that names another file: SQLite deletes that one when it has rolled back."""
    name = os.fsencode(victim)
    page = struct.pack(">5I", 0, 0, pages, 512, 4096)
    header = JOURNAL_END + page + bytes(512 - 8 - len(page))
    ending = struct.pack(">I", 0x3FFFFFFF) + name + struct.pack(">II", len(name), sum(name)) + JOURNAL_END
    return header + ending


def test_a_forged_journal_deletes_nothing(record: Path, tmp_path: Path) -> None:
    victim, journal, said = tmp_path / "victim", Path(f"{record}-journal"), list[str]()
    victim.write_bytes(b"-journal-" * 99)
    pages = record.stat().st_size // 4096
    journal.write_bytes(forged_journal(victim, pages))
    open_database(record, said.append).close()
    assert victim.exists()
    assert "set aside as .foreign-record.sqlite-journal-" in said[0]
    # The attack is a real one: without setting it aside, the file is gone.
    control = tmp_path / "control.sqlite"
    shutil.copy(record, control)
    Path(f"{control}-journal").write_bytes(forged_journal(victim, pages))
    change(control, "CREATE TABLE x (a)")
    assert not victim.exists()


def test_a_backup_by_hard_links_keeps_its_bytes(record: Path, tmp_path: Path) -> None:
    killed, backup = tmp_path / "killed", tmp_path / "backup"
    held = sqlite3.connect(record)  # so that the WAL and the shared memory are there
    held.execute("SELECT count(*) FROM reading").fetchall()
    writer = RecordWriter(record, from_step=1, say=pytest.fail)
    writer.add(1, {"loss/mean": 2.0})
    writer.close()
    shutil.copytree(record.parent, killed)
    held.close()
    record = killed / record.name
    shutil.copytree(killed, backup, copy_function=os.link)
    before = {path.name: path.read_bytes() for path in backup.iterdir()}
    assert any(name.endswith("-wal") for name in before)
    with open_history(backup / record.name) as history:
        assert history.last("loss/mean") == (1, 2.0)
    assert {path.name: path.read_bytes() for path in backup.iterdir()} == before
    later = RecordWriter(record, from_step=2, say=pytest.fail)
    later.add(2, {"loss/mean": 3.0})
    later.close()
    assert {path.name: path.read_bytes() for path in backup.iterdir()} == before
    with open_history(record) as history:
        assert history.last("loss/mean") == (2, 3.0)


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_plain_file_is_refused_and_never_waited_for(record: Path, tmp_path: Path, ending: str, kind: str):
    place, victim = Path(f"{record}{ending}"), tmp_path / "victim"
    shutil.copy(record, victim)
    before = victim.read_bytes()
    place.unlink(missing_ok=True)
    {"link": lambda: place.symlink_to(victim), "pipe": lambda: os.mkfifo(place), "folder": place.mkdir}[kind]()
    with pytest.raises(RecordError):
        open_database(record)
    with pytest.raises(RecordError):
        open_history(record)
    assert victim.read_bytes() == before
