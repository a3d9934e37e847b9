"""The writer of a record: nothing it is handed is lost in silence, and nothing ends the run."""

from __future__ import annotations

import math
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from records import record, rows, write_steps

from safelight.record.database import open_database
from safelight.record.reading import read_events, read_signal
from safelight.record.schema import SCHEMA
from safelight.record.store import RecordWriter


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    write_steps(path, range(200))
    assert read_signal(path, "loss") == [(step, step / 4) for step in range(200)]
    assert read_signal(path, "lr") == [(step, 0.5) for step in range(200)]
    assert read_signal(path, "nothing") == []
    assert sum(count for _, _, count, *_ in rows(path)) == 200
    first, last, count, nonfinite, low, high, mean, latest = rows(path)[1]
    assert (low, high, mean, latest) == (first / 4, last / 4, (first + last) / 8, last / 4)
    assert (count, nonfinite) == (last - first + 1, 0)


def test_what_could_not_be_stored_is_tried_again_though_nothing_more_comes(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    said: list[str] = []
    kept = record(path, say=said.append)
    kept.flush(wait=True)
    with patch("safelight.record.store.transaction", side_effect=sqlite3.OperationalError("full")):
        kept.add(0, {"loss": 1.0})
        kept.flush(wait=True)
    until = time.monotonic() + 300
    while not read_signal(path, "loss"):
        assert time.monotonic() < until, "the writer waits for more"
        time.sleep(0.01)
    kept.close()
    assert len(said) == 1


@pytest.mark.parametrize("at", [0, 1, 63, 64, 65, 100, 127, 128, 199, 200, 500])
def test_resume_forgets_the_lost_future_and_never_doubles(tmp_path: Path, at: int) -> None:
    """Killed after step 199, resumed at `at`, which may lie in the middle of a window: each step stands there once."""
    path = tmp_path / "record.sqlite"
    write_steps(path, range(200))
    record(path, at).close()
    kept = [(step, step / 4) for step in range(min(at, 200))]
    assert read_signal(path, "loss") == kept
    assert sum(count for _, _, count, *_ in rows(path)) == len(kept)
    write_steps(path, range(at, at + 50), offset=1000.0)
    assert read_signal(path, "loss") == kept + [(step, step / 4 + 1000) for step in range(at, at + 50)]


def test_without_forgetting_steps_would_stand_twice(tmp_path: Path) -> None:
    """Negative control: a resume that claims to start after the end cuts nothing."""
    path = tmp_path / "record.sqlite"
    write_steps(path, range(200))
    write_steps(path, range(100, 150), from_step=200)
    steps = [step for step, _ in read_signal(path, "loss")]
    assert len(steps) > len(set(steps))


def test_events_are_kept_in_order_and_forgotten_alike(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    kept = record(path)
    for step in (2, 5, 5, 9):
        kept.event(step, "refused", samples=[step], where=Path("x"), size=math.nan)
    kept.event(9, "stopped", first_nonfinite="the loss")
    kept.close()
    assert [(step, kind) for step, kind, _ in read_events(path)] == [(2, "refused")] + [(5, "refused")] * 2 + [
        (9, "refused"),
        (9, "stopped"),
    ]
    assert read_events(path, "stopped") == [(9, "stopped", {"first_nonfinite": "the loss"})]
    assert read_events(path)[0][2]["samples"] == [2]
    record(path, 5).close()  # step 5 is trained again, and refused again
    assert [step for step, _, _ in read_events(path)] == [2]


def _garbage(path: Path) -> None:
    path.write_bytes(b"no database at all, but long enough to look like one" * 50)


def _folder(path: Path) -> None:
    path.mkdir()


def _other_columns(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE reading (other)")
    database.close()


def _damaged_row(path: Path) -> None:
    database = open_database(path)
    database.execute("INSERT INTO reading VALUES ('loss', 0, 90, 91, 0, 0, 0, 0, 0, NULL, x'0011')")
    database.close()


def _no_parent(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("spoil", [_garbage, _folder, _other_columns, _damaged_row, _no_parent])
def test_a_record_that_cannot_be_opened_does_not_end_the_run(tmp_path: Path, spoil) -> None:
    """Told once; a thousand flushes later nothing raises, blocks or is told again."""
    folder = tmp_path / "run"
    folder.mkdir()
    spoil(folder / "record.sqlite")
    said: list[str] = []
    kept = record(folder / "record.sqlite", from_step=50, say=said.append)
    for step in range(1000):
        kept.add(step, {"loss": 1.0})
        kept.flush()
        kept.event(step, "refused")
    closing = threading.Thread(target=kept.close, daemon=True)
    closing.start()
    closing.join(300)
    assert not closing.is_alive(), "close() hangs"
    opened = [words for words in said if "cannot be opened" in words]
    assert len(opened) == 1
    assert "the run goes on" in opened[0]


@pytest.mark.parametrize("room", [True, False])
def test_a_full_disk_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: bool) -> None:
    """SQLite's own page limit stands in for the disk: SQLITE_FULL, as on a full one. Room again: nothing is lost."""
    from safelight.record import store

    opened: list[sqlite3.Connection] = []

    def small(path: Path, _: object) -> sqlite3.Connection:
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        database.executescript(SCHEMA)
        database.execute("PRAGMA max_page_count = 16")
        opened.append(database)
        return database

    monkeypatch.setattr(store, "open_database", small)
    path, said = tmp_path / "record.sqlite", list[str]()
    kept = record(path, say=said.append)
    for step in range(100):
        kept.event(step, "note", words="x" * 1000)
        kept.add(step, {"loss": step / 4})
        kept.flush(wait=True)
    [told] = [words for words in said if "could not be written" in words]
    assert "full" in told
    assert "tried again, the run goes on" in told
    if room:
        opened[0].execute("PRAGMA max_page_count = 100000")
    kept.event(100, "note", words="the last" + "x" * 10_000)
    kept.close()
    found = [step for step, _, _ in read_events(path)]
    assert found[:2] == [0, 1], "what fitted is still there"
    assert (found == list(range(101))) == room
    assert (read_signal(path, "loss") == [(step, step / 4) for step in range(100)]) == room
    assert any("rows of the record are lost" in words for words in said) != room


def test_a_closed_database_costs_rows_and_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safelight.record import store

    def closed(path: Path, say: Callable[[str], None]) -> sqlite3.Connection:
        database = open_database(path, say)
        monkeypatch.setattr(store, "forget_from", lambda database, step: database.close())
        return database

    monkeypatch.setattr(store, "open_database", closed)
    said: list[str] = []
    kept = record(tmp_path / "record.sqlite", say=said.append)
    kept.event(1, "note")
    kept.add(1, {"loss": 1.0})
    kept.close()
    assert len([words for words in said if "could not be written" in words and "lost" in words]) == 1


def test_a_terminal_that_is_gone_does_not_end_the_record(tmp_path: Path) -> None:
    def gone(words: str) -> None:
        raise BrokenPipeError(words)

    kept = record(tmp_path / "record.sqlite", say=gone)
    kept.add_window(np.arange(2), ("bad",), np.zeros((9, 9), np.float32))
    kept.flush(wait=True)
    kept.add(1, {"loss": 1.0})
    kept.close()
    assert read_signal(tmp_path / "record.sqlite", "loss") == [(1, 1.0)]


def test_reading_while_it_is_written(tmp_path: Path) -> None:
    """A reader sees whole windows, in order, and never stops the writer."""
    path = tmp_path / "record.sqlite"
    open_database(path).close()
    kept = record(path)
    kept.add(0, {"loss": 0.0})
    seen: list[int] = []
    for step in range(1, 400):
        kept.add(step, {"loss": step / 4})
        if step % 20 == 0:
            kept.flush(wait=step % 40 == 0)
            found = read_signal(path, "loss")
            assert found == [(s, s / 4) for s in range(len(found))]
            seen.append(len(found))
    kept.close()
    assert seen == sorted(seen)
    assert len(read_signal(path, "loss")) == 400


def test_what_was_added_is_stored_soon_though_nobody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer never rests longer than STORE_SECONDS: with the commit, that is what a kill costs at most."""
    from safelight.record import store

    waits = list[float]()

    class Noting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout is not None and threading.current_thread().name == "safelight-record":
                waits.append(timeout)
            return super().wait(timeout)

    monkeypatch.setattr(store, "threading", SimpleNamespace(Event=Noting, Thread=threading.Thread))
    path = tmp_path / "record.sqlite"
    kept = record(path)
    until = time.monotonic() + 300
    for step in range(3):
        kept.add(step, {"loss": 1.0})
        while not path.exists() or len(stored_steps(path)) <= step:
            assert time.monotonic() < until, "the writer waits to be asked"
            time.sleep(0.01)
    kept.close()
    assert waits
    assert max(waits) <= store.STORE_SECONDS


def stored_steps(path: Path) -> list[int]:
    """None while the writer has not made its tables yet."""
    try:
        return [step for step, _ in read_signal(path, "loss")]
    except sqlite3.Error:
        return []


KILLED = """
import os, sys, time
from pathlib import Path
from unittest.mock import patch
from safelight.record.store import RecordWriter
kept = RecordWriter(Path(sys.argv[1]), from_step=0, say=print)
for step in range(1000):
    kept.add(step, {"loss": step / 4})
kept.flush(wait=True)
for step in range(1000, 1010):
    kept.add(step, {"loss": step / 4})
os.kill(os.getpid(), 9)
"""


def test_a_kill_leaves_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)]).returncode == -9
    found = read_signal(path, "loss")
    assert len(found) >= 1000, "all that was flushed"
    assert found == [(step, step / 4) for step in range(len(found))]
    write_steps(path, range(500, 510))
    assert [step for step, _ in read_signal(path, "loss")] == list(range(510))


@pytest.mark.parametrize(
    "bad", [{"a": None}, {"a": "words"}, {"a": [1.0, 2.0]}, {"a": object()}], ids=["none", "text", "list", "object"]
)
def test_what_is_no_number_is_told_and_takes_nothing_with_it(tmp_path: Path, bad: dict) -> None:
    path, said = tmp_path / "record.sqlite", list[str]()
    record = RecordWriter(path, from_step=0, say=said.append)
    record.add(0, {"a": 1.0, "b": 1.0})
    record.add(1, {**bad, "b": 2.0})
    record.add(2, {"a": 3.0, "b": 3.0})
    record.add(3, {})
    record.add_window(np.arange(3), ("c",), np.zeros((2, 1), np.float32))
    record.close()
    # None is what numpy takes for NaN: kept as that.
    steps = [step for step, _ in read_signal(path, "a")]
    assert steps in ([0, 2], [0, 1, 2])
    assert read_signal(path, "b") == [(0, 1.0), (1, 2.0), (2, 3.0)]
    assert any("c could not be recorded" in words for words in said)
    assert any("a could not be recorded" in words for words in said) == (steps == [0, 2])


def test_numbers_change_after_they_were_handed_over(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    record, numbers = RecordWriter(path, from_step=0, say=pytest.fail), {"a": 1.0}
    record.add(0, numbers)
    numbers["a"] = 2.0
    record.close()
    assert read_signal(path, "a") == [(0, 1.0)]


def test_a_writer_that_cannot_keep_up_says_what_it_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safelight.record import store

    said, go = list[str](), threading.Event()
    monkeypatch.setattr(store, "LARGEST_BACKLOG", 10)
    monkeypatch.setattr(store, "open_database", lambda *given: [go.wait(300), open_database(*given)][1])
    record = RecordWriter(tmp_path / "record.sqlite", from_step=0, say=said.append)
    for step in range(25):
        record.add(step, {"a": 1.0})
    go.set()
    record.close()
    assert said == ["The record was too slow: 15 entries were left out."]
    assert len(read_signal(tmp_path / "record.sqlite", "a")) == 10


def test_an_entry_without_room_takes_nothing_with_it(tmp_path: Path) -> None:
    """One that SQLite refuses would roll back all that is stored with it."""
    path, said = tmp_path / "record.sqlite", list[str]()
    record = RecordWriter(path, from_step=0, say=said.append)
    record.add(0, {"a": 1.0})
    record.picture(1, "\ud800", Path("samples/x.png"), (1, 1))
    record.event(2**70, "much", a=1)
    record.finding(0, "ok", a=1)
    record.close()
    assert read_signal(path, "a") == [(0, 1.0)]
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM finding").fetchone() == (1,)
    database.close()
    assert sum("is left out" in words for words in said) == 2
    assert not any("lost" in words for words in said)
