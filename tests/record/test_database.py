"""Upgrades, refusals, damage, and values that are none."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from series import check, write

from safelight.record import database
from safelight.record.history import open_history
from safelight.record.reading import read_events, read_signal
from safelight.record.schema import CHUNK_STEPS, VERSION
from safelight.record.store import RecordWriter

VERSION_1 = """
CREATE TABLE reading (
    signal TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    count INTEGER NOT NULL, nonfinite INTEGER NOT NULL,
    low REAL, high REAL, mean REAL, latest REAL,
    steps BLOB, numbers BLOB NOT NULL,
    PRIMARY KEY (signal, first)) STRICT, WITHOUT ROWID;
CREATE TABLE event (
    id INTEGER PRIMARY KEY, step INTEGER NOT NULL, time REAL NOT NULL, kind TEXT NOT NULL, facts TEXT NOT NULL) STRICT;
PRAGMA user_version = 1;
"""


def make_version_1(path: Path, count: int = 1500) -> tuple[np.ndarray, np.ndarray]:
    """As the first safelight wrote it: rows of any length, across multiples of 64."""
    steps, numbers = np.arange(count), np.sin(np.arange(count)).astype(np.float32)
    numbers[700] = np.nan
    old = sqlite3.connect(path)
    old.executescript("PRAGMA journal_mode = WAL;" + VERSION_1)
    for part in np.array_split(steps, count // 37):
        row = (int(part[0]), int(part[-1]), len(part), 0, 0.0, 0.0, 0.0, 0.0, None, numbers[part].tobytes())
        old.execute("INSERT INTO reading VALUES ('a', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    sparse = np.array([10, 500, 1000])
    row = (10, 1000, 3, 0, 0.0, 0.0, 0.0, 0.0, sparse.tobytes(), np.float32([1, 2, 3]).tobytes())
    old.execute("INSERT INTO reading VALUES ('probe', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    old.execute("INSERT INTO event VALUES (NULL, 3, 0.0, 'note', '{}')")
    old.commit()
    old.close()
    return steps, numbers


def test_version_1_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    steps, numbers = make_version_1(path)
    with open_history(path) as history:
        assert history.signals() == ["a", "probe"]
        for pixels in (1, 5, 100, 3000):
            check(history.zoom("a", pixels=pixels), steps, numbers)
        check(history.zoom("a", 100, 900, pixels=2), steps[100:901], numbers[100:901])
        assert history.raw("probe", 400, 600)[0].tolist() == [500]
        assert (len(history.events()), history.findings(), history.pictures()) == (1, [], [])


@pytest.mark.parametrize("at", [0, 1, 640, 700, 1499, 1500, 5000])
def test_version_1_is_upgraded_when_it_is_resumed(tmp_path: Path, at: int) -> None:
    path = tmp_path / "record.sqlite"
    steps, numbers = make_version_1(path)
    more = np.arange(at, at + 300)
    write(path, [(more, np.full(300, 5.0))], from_step=at)
    steps, numbers = np.append(steps[:at], more), np.append(numbers[:at], np.full(300, 5.0)).astype(np.float32)
    with open_history(path) as history:
        for pixels in (1, 5, 100):
            check(history.zoom("a", pixels=pixels), steps, numbers)
    opened = sqlite3.connect(path)
    assert opened.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert opened.execute(
        f"SELECT count(*) FROM reading WHERE first / {CHUNK_STEPS} != last / {CHUNK_STEPS}"
    ).fetchone() == (0,)
    assert opened.execute(
        "SELECT max(n) FROM (SELECT count(*) n FROM reading GROUP BY signal, first / 64)"
    ).fetchone() == (1,)
    opened.close()
    assert len(read_events(path)) == (at > 3)
    assert [step for step, _ in read_signal(path, "probe")] == [step for step in (10, 500, 1000) if step < at]


def test_an_upgrade_that_breaks_off_leaves_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, said = tmp_path / "record.sqlite", list[str]()
    steps, numbers = make_version_1(path)

    class Broken(database.ChunkWriter):
        def store(self) -> None:
            raise OSError("pulled the plug")

    monkeypatch.setattr(database, "ChunkWriter", Broken)
    record = RecordWriter(path, from_step=100, say=said.append)
    record.add(100, {"a": 1.0})
    record.close()
    assert len(said) == 1
    assert "pulled the plug" in said[0]
    with open_history(path) as history:
        check(history.zoom("a"), steps, numbers)


def test_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path, said = tmp_path / "record.sqlite", list[str]()
    write(path, [(np.arange(100), np.zeros(100))])
    opened = sqlite3.connect(path)
    opened.execute(f"PRAGMA user_version = {VERSION + 1}")
    opened.close()
    before = path.read_bytes()
    record = RecordWriter(path, from_step=50, say=said.append)
    for step in range(50, 200):
        record.add(step, {"a": 1.0})
        record.flush(wait=step % 50 == 0)
    record.close()
    [words] = said
    assert f"has version {VERSION + 1}" in words
    assert "the run goes on without it" in words
    assert path.read_bytes() == before
