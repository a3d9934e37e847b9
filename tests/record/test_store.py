from __future__ import annotations

import json
import math
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from safelight.record.chunks import summarise
from safelight.record.database import open_database
from safelight.record.reading import read_events, read_signal
from safelight.record.schema import SCHEMA
from safelight.record.store import RecordWriter


def record(path: Path, from_step: int = 0, say=pytest.fail) -> RecordWriter:
    return RecordWriter(path, from_step=from_step, say=say)


def rows(path: Path, signal: str = "loss") -> list[tuple]:
    with sqlite3.connect(path) as database:
        columns = "first, last, count, nonfinite, low, high, mean, latest"
        found = database.execute(f"SELECT {columns} FROM reading WHERE signal = ? ORDER BY first", (signal,)).fetchall()
    database.close()
    return found


def write(path: Path, steps: range, from_step: int | None = None, offset: float = 0.0) -> None:
    """Readings of a run that went through these steps."""
    kept = record(path, steps.start if from_step is None else from_step)
    for step in steps:
        kept.add(step, {"loss": step / 4 + offset, "lr": 0.5})
    kept.close()


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    write(path, range(200))
    assert read_signal(path, "loss") == [(step, step / 4) for step in range(200)]
    assert read_signal(path, "lr") == [(step, 0.5) for step in range(200)]
    assert read_signal(path, "nothing") == []
    assert sum(count for _, _, count, *_ in rows(path)) == 200
    first, last, count, nonfinite, low, high, mean, latest = rows(path)[1]
    assert (low, high, mean, latest) == (first / 4, last / 4, (first + last) / 8, last / 4)
    assert (count, nonfinite) == (last - first + 1, 0)


@pytest.mark.parametrize("reopened", [False, True])
def test_a_number_that_comes_late_leaves_no_second_row(tmp_path: Path, reopened: bool) -> None:
    """The row begins at another step then: the one that began later is no longer true."""
    path = tmp_path / "record.sqlite"
    kept = record(path)
    for step in (70, 75, 80):
        kept.add(step, {"loss": float(step)})
    kept.flush(wait=True)
    if reopened:
        kept.close()
        kept = record(path, from_step=81)
    kept.add(66, {"loss": 66.0})
    kept.flush(wait=True)
    kept.add(81, {"loss": 81.0})
    kept.close()
    assert [row[:3] for row in rows(path)] == [(66, 81, 5)]
    assert read_signal(path, "loss") == [(step, float(step)) for step in (66, 70, 75, 80, 81)]


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


@pytest.mark.parametrize(("start", "stop"), [(0, 640), (1, 641), (63, 65), (64, 128), (5, 6)])
def test_every_64_steps_are_one_row(tmp_path: Path, start: int, stop: int) -> None:
    path = tmp_path / "record.sqlite"
    kept = record(path)
    for step in range(start, stop):
        kept.add(step, {"loss": 1.0})
        if step % 7 == 0:
            kept.flush(wait=True)
    kept.close()
    cells = range(start // 64, (stop - 1) // 64 + 1)
    assert [row[:3] for row in rows(path)] == [
        (first := max(start, 64 * cell), last := min(stop - 1, 64 * cell + 63), last - first + 1) for cell in cells
    ]


def test_steps_need_not_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    kept = record(path)
    for step in (3, 7, 7, 20, 21):
        kept.add(step, {"probe": float(step)})
    kept.close()
    assert read_signal(path, "probe") == [(3, 3.0), (7, 7.0), (7, 7.0), (20, 20.0), (21, 21.0)]


def test_what_is_not_finite_is_kept_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    kept = record(path)
    numbers = [1.0, math.nan, 3.0, math.inf, -math.inf, 2.0, math.nan]
    for step, number in enumerate(numbers, start=1):
        kept.add(step, {"loss": number, "all": math.nan})
    kept.close()
    found = [number for _, number in read_signal(path, "loss")]
    assert np.array_equal(found, numbers, equal_nan=True)
    assert rows(path) == [(1, 7, 7, 4, 1.0, 3.0, 2.0, None)]
    assert rows(path, "all") == [(1, 7, 7, 7, None, None, None, None)]


@pytest.mark.parametrize(
    ("numbers", "nonfinite", "mean"),
    [([1.0, 2.0], 0, 1.5), ([1e300, 1.0], 1, 1.0), ([3e38, 3e38], 0, pytest.approx(3e38)), ([-0.0], 0, 0.0)],
)
def test_summary_does_not_overflow(numbers: list[float], nonfinite: int, mean: float) -> None:
    """float32 keeps the numbers, float64 adds them up."""
    with np.errstate(over="ignore"):
        [row] = summarise(np.array([numbers], np.float32))
    assert (row[1], row[4]) == (nonfinite, mean)


@pytest.mark.parametrize("at", [0, 1, 63, 64, 65, 100, 127, 128, 199, 200, 500])
def test_resume_forgets_the_lost_future_and_never_doubles(tmp_path: Path, at: int) -> None:
    """Killed after step 199, resumed at `at`, which may lie in the middle of a window: each step stands there once."""
    path = tmp_path / "record.sqlite"
    write(path, range(200))
    record(path, at).close()
    kept = [(step, step / 4) for step in range(min(at, 200))]
    assert read_signal(path, "loss") == kept
    assert sum(count for _, _, count, *_ in rows(path)) == len(kept)
    write(path, range(at, at + 50), offset=1000.0)
    assert read_signal(path, "loss") == kept + [(step, step / 4 + 1000) for step in range(at, at + 50)]


def test_without_forgetting_steps_would_stand_twice(tmp_path: Path) -> None:
    """Negative control: a resume that claims to start after the end cuts nothing."""
    path = tmp_path / "record.sqlite"
    write(path, range(200))
    write(path, range(100, 150), from_step=200)
    steps = [step for step, _ in read_signal(path, "loss")]
    assert len(steps) > len(set(steps))


def test_a_cut_window_is_summed_up_again(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    kept = record(path)
    for step in range(1, 11):
        kept.add(step, {"loss": math.nan if step > 5 else float(step)})
    kept.close()
    record(path, 4).close()
    assert rows(path) == [(1, 3, 3, 0, 1.0, 3.0, 2.0, 3.0)]


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


@pytest.mark.parametrize("name", ["plain", "with space", "100%25", "what?mode=rw", "a#b", "ünïcödé", "a&b;c"])
def test_any_run_folder_name_can_be_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    path = tmp_path / name / "record.sqlite"
    write(path, range(3))
    assert len(read_signal(path, "loss")) == 3
    assert read_events(path) == []
    assert {p.name for p in tmp_path.iterdir()} == {name}


def test_reading_works_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("record.sqlite"), range(3))
    assert len(read_signal(Path("record.sqlite"), "loss")) == 3


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

    def small(path: Path) -> sqlite3.Connection:
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

    def closed(path: Path) -> sqlite3.Connection:
        database = open_database(path)
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
    write(path, range(500, 510))
    assert [step for step, _ in read_signal(path, "loss")] == list(range(510))


def test_facts_are_json_that_any_tool_reads(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    kept = record(path)
    kept.event(1, "note", text="ünï\ud800", number=1.5, list_=[1, 2], none=None)
    kept.close()
    with sqlite3.connect(path) as database:
        [(facts,)] = database.execute("SELECT facts FROM event").fetchall()
    database.close()
    assert json.loads(facts)["number"] == 1.5
