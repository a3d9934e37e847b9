"""Records are opened wherever they lie, also on a disk that cannot be written."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from records import write_steps

from safelight.errors import RecordError
from safelight.record import reading
from safelight.record.history import open_history
from safelight.record.reading import read_events, read_signal
from safelight.record.store import RecordWriter


@pytest.mark.parametrize("name", ["plain", "with space", "100%25", "what?mode=rw", "a#b", "ünïcödé", "a&b;c"])
def test_any_run_folder_name_can_be_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    path = tmp_path / name / "record.sqlite"
    write_steps(path, range(3))
    assert len(read_signal(path, "loss")) == 3
    assert read_events(path) == []
    assert {p.name for p in tmp_path.iterdir()} == {name}


def test_reading_works_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_steps(Path("record.sqlite"), range(3))
    assert len(read_signal(Path("record.sqlite"), "loss")) == 3


@pytest.mark.parametrize("killed", [True, False])
def test_a_disk_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool) -> None:
    """SQLite cannot make the file for shared memory there; after a kill, the newest readings are in the log."""
    path, other = tmp_path / "record.sqlite", tmp_path / "copy" / "record.sqlite"
    record = RecordWriter(path, from_step=0, say=pytest.fail)
    record.add(0, {"a": 1.0})
    record.flush(wait=True)
    if not killed:
        record.close()
    other.parent.mkdir()
    for name in tmp_path.glob("record.sqlite*"):
        if "shm" not in name.name:
            shutil.copy(name, other.parent)
    connect = sqlite3.connect

    def read_only(name: str, **options) -> sqlite3.Connection:
        if str(other) in str(name) and "immutable" not in name:
            raise sqlite3.OperationalError("unable to open database file")
        return connect(name, **options)

    monkeypatch.setattr(reading.sqlite3, "connect", read_only)
    with open_history(other) as history:
        assert history.last("a") == (0, 1.0)
    if killed:
        record.close()


def test_a_copy_is_refused_before_it_fills_the_disk(tmp_path: Path) -> None:
    """A shared -shm file forces a copy, and the record claims 4 TB."""
    path = tmp_path / "record.sqlite"
    write_steps(path, range(3))
    (tmp_path / "record.sqlite-shm").touch()
    os.link(tmp_path / "record.sqlite-shm", tmp_path / "another name")
    (tmp_path / "record.sqlite-wal").write_bytes(b"x")
    os.truncate(path, 1 << 42)
    with pytest.raises(RecordError, match="too much"):
        read_signal(path, "loss")
