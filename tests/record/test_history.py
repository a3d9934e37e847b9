"""Any zoom tells the truth, whatever came, was cut and came again."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from series import check, write

from safelight.errors import RecordError
from safelight.record import history as history_module
from safelight.record.database import SIGNALS
from safelight.record.history import open_history
from safelight.record.schema import VERSION
from safelight.record.store import RecordWriter

SICK = [np.nan, np.inf, -np.inf, 1e6, -1e6]


def make_series(draw: np.random.Generator, count: int, gap: int, sick: float) -> tuple[np.ndarray, np.ndarray]:
    steps = np.cumsum(draw.integers(1, gap + 1, count)) - 1
    numbers = draw.normal(size=count).astype(np.float32)
    return steps, np.where(draw.random(count) < sick, draw.choice(SICK, count), numbers).astype(np.float32)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 6000),
    gap=st.sampled_from([1, 1, 2, 50, 1000]),
    sick=st.sampled_from([0.0, 0.001, 0.5, 1.0]),
    parts=st.integers(1, 6),
    resume=st.floats(0, 1.2),
    stop=st.floats(0, 1),
    zooms=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(1, 3000)), min_size=1, max_size=4),
)
def test_every_zoom_equals_brute_force(seed, count, gap, sick, parts, resume, stop, zooms) -> None:
    """Written in parts, cut in the middle as a resume does, written on for a while, and looked at from anywhere."""
    draw = np.random.default_rng(seed)
    steps, numbers = make_series(draw, count, gap, sick)
    end = int(steps[-1]) + 1
    again = int(end * resume)
    begin = int(np.searchsorted(steps, again))
    tail = slice(begin, begin + int((count - begin) * stop))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.sqlite"
        write(path, zip(np.array_split(steps, parts), np.array_split(-numbers, parts), strict=True))
        write(path, [(steps[tail], numbers[tail])], from_step=again)
        numbers = np.where(steps < again, -numbers, numbers)[: tail.stop]
        steps = steps[: tail.stop]
        with open_history(path) as history:
            check(history.zoom("a", pixels=1), steps, numbers)
            for one, other, pixels in zooms:
                first, last = sorted((int(one * end), int(other * end)))
                inside = (steps >= first) & (steps <= last)
                spans = history.zoom("a", first, last, pixels=pixels)
                check(spans, steps[inside], numbers[inside])
                assert len(spans) <= 4 * pixels + 40
                found = history.raw("a", first, last)
                assert np.array_equal(found[0], steps[inside])
                assert np.array_equal(found[1], numbers[inside], equal_nan=True)


def test_an_answer_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is cut and taken up again while a zoom is between two queries."""
    path = tmp_path / "record.sqlite"
    write(path, [(np.arange(2000), np.zeros(2000))])
    with open_history(path) as history:
        real = history_module.select_statistics

        def slow(*arguments) -> list[tuple]:
            found = real(*arguments)
            RecordWriter(path, from_step=100, say=pytest.fail).close()
            return found

        monkeypatch.setattr(history_module, "select_statistics", slow)
        check(history.zoom("a", pixels=1), np.arange(2000), np.zeros(2000))
        monkeypatch.undo()
        check(history.zoom("a", pixels=1), np.arange(100), np.zeros(100))


@pytest.mark.parametrize("steps", [100_000])
def test_a_zoom_reads_few_rows_however_long_the_run(tmp_path: Path, steps: int) -> None:
    path = tmp_path / "record.sqlite"
    numbers = np.zeros(steps, np.float32)
    numbers[[5, 77_777, 99_999]] = 7, np.nan, -7
    write(path, [(np.arange(steps), numbers)])
    with open_history(path) as history:
        for pixels in (1, 3, 10, 100, 1000):
            spans = history.zoom("a", pixels=pixels)
            assert pixels <= len(spans) <= 4 * pixels + 30
            assert (np.nanmax(spans.high), np.nanmin(spans.low), spans.nonfinite.sum()) == (7, -7, 1)
        assert (history.find("a", 7.0), history.find("a", -7.0), history.find("a", 3.0)) == (5, 99_999, None)
        assert history.last("a") == (99_999, -7.0)
        plan = history._database.execute(f"EXPLAIN QUERY PLAN {SIGNALS}").fetchall()
        assert not [row for row in plan if "SCAN reading" in row[3]]


@pytest.mark.parametrize("ask", [("zoom", "none"), ("raw", "none"), ("zoom", "a", 50), ("raw", "a", -9, -1)])
def test_nothing_there(tmp_path: Path, ask: tuple) -> None:
    path = tmp_path / "record.sqlite"
    write(path, [(np.arange(3), np.zeros(3))])
    with open_history(path) as history:
        found = getattr(history, ask[0])(*ask[1:])
        assert len(found[0] if ask[0] == "raw" else found) == 0
        assert (history.last("none"), history.total("none"), history.find("none", 0.0)) == (None, None, None)


def test_events_findings_and_pictures_are_cut_alike(tmp_path: Path) -> None:
    path = tmp_path / "run" / "record.sqlite"
    path.parent.mkdir()
    record = RecordWriter(path, from_step=0, say=pytest.fail)
    for step in (0, 10, 20):
        record.event(step, "note", step=step, size=float("nan"))
        record.finding(step, "lr.too-high", summary="high", kind=1)
        record.picture(step, "samples", path.parent / "samples" / f"{step}.png", (64, 32))
        record.picture(step, "samples", Path("samples") / f"{step}.png", (64, 32))  # the same
    record.close()
    RecordWriter(path, from_step=10, say=pytest.fail).close()
    with open_history(path) as history:
        [event] = history.events("note")
        assert (event.step, event.name, event.facts) == (0, "note", {"step": 0, "size": "NaN"})
        assert history.events("other") == []
        assert [(each.step, each.name, each.facts["kind"]) for each in history.findings()] == [(0, "lr.too-high", 1)]
        # The picture after 10 steps was drawn before the checkpoint of 10 steps.
        assert [(each.step, each.path.as_posix()) for each in history.pictures("samples")] == [
            (0, "samples/0.png"),
            (10, "samples/10.png"),
        ]
        assert (history.pictures()[0].width, history.pictures()[0].height) == (64, 32)


OTHER = """
import sys
from pathlib import Path
import numpy as np
from safelight.record.history import open_history
known = -1
while True:
    with open_history(Path(sys.argv[1])) as history:
        steps, numbers = history.raw("a")
        assert (np.diff(steps) == 1).all() and (numbers == steps).all(), steps
        spans = history.zoom("a", pixels=5)
        assert spans.first[0] == 0 and (spans.first[1:] == spans.last[:-1] + 1).all()
    if len(steps) != known:  # never more lines than there are commits: the pipe must not fill with the past
        known = len(steps)
        print(known, flush=True)
"""


def test_another_process_reads_while_it_is_written(tmp_path: Path) -> None:
    """Whole and in order at every moment; and a reader that sits on its snapshot does not stop the writer."""
    path = tmp_path / "record.sqlite"
    write(path, [(np.arange(10), np.arange(10))])
    sitting = open_history(path)
    sitting._database.execute("BEGIN")
    assert sitting._database.execute("SELECT sum(count) FROM reading").fetchone() == (10,)
    command = [sys.executable, "-c", OTHER, str(path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert child.stdout is not None
    seen = [int(child.stdout.readline())]
    record = RecordWriter(path, from_step=10, say=pytest.fail)
    for start in range(10, 40_010, 100):
        steps = np.arange(start, start + 100)
        record.add_window(steps, ("a",), steps[:, None].astype(np.float32))
        if start % 2000 == 10:
            record.flush(wait=True)
            while seen[-1] < start + 100:
                seen.append(int(child.stdout.readline()))
    record.close()
    child.kill()
    assert "Traceback" not in child.communicate()[0]
    assert sitting._database.execute("SELECT sum(count) FROM reading").fetchone() == (10,)
    sitting.close()
    assert seen == sorted(seen)
    assert seen[0] == 10
    with open_history(path) as history:
        assert len(history.raw("a")[0]) == 40_010


def _newer(path: Path) -> None:
    write(path, [(np.arange(3), np.zeros(3))])
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _garbage(path: Path) -> None:
    path.write_bytes(b"no database at all, but long enough to look like one" * 50)


def _cut_short(path: Path) -> None:
    write(path, [(np.arange(5000), np.zeros(5000))])
    path.write_bytes(path.read_bytes()[:6000])


def _damaged_row(path: Path) -> None:
    write(path, [(np.arange(3), np.zeros(3))])
    database = sqlite3.connect(path)
    database.execute("UPDATE reading SET numbers = x'00000000'")
    database.commit()
    database.close()


def _damaged_schema(path: Path) -> None:
    write(path, [(np.arange(3), np.zeros(3))])
    path.write_bytes(path.read_bytes().replace(b"level INTEGER NOT", b"level INTEGER N\xcfT"))


def _without_steps(path: Path) -> None:
    """As a flipped bit leaves it: the table forbids what the row holds."""
    write(path, [(np.arange(3), np.zeros(3))])
    database = sqlite3.connect(path)
    database.executescript(
        "PRAGMA writable_schema = ON;"
        "UPDATE sqlite_schema SET sql = replace(sql, 'last INTEGER NOT NULL', 'last INTEGER');"
    )
    database.close()
    database = sqlite3.connect(path)
    database.executescript(
        "UPDATE reading SET last = NULL; PRAGMA writable_schema = ON;"
        "UPDATE sqlite_schema SET sql = replace(sql, 'last INTEGER', 'last INTEGER NOT NULL');"
    )
    database.close()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: None, "There is no record"),
        (_damaged_schema, "cannot be read"),
        (_without_steps, "does not say of which steps it is"),
        (_newer, f"has version {VERSION + 1}, but this safelight knows versions up to {VERSION}"),
        (_empty, "holds no record"),
        (_garbage, "cannot be read: file is not a database"),
        (_cut_short, "cannot be read"),
        (_damaged_row, "has 3 steps and 1 numbers"),
    ],
    ids=["missing", "schema", "without steps", "newer", "empty", "garbage", "cut short", "damaged row"],
)
def test_what_cannot_be_read_is_told_in_words(tmp_path: Path, spoil, words: str) -> None:
    path = tmp_path / "record.sqlite"
    spoil(path)
    with pytest.raises(RecordError, match=words), open_history(path) as history:
        history.raw("a")
