"""Malformed records: SQLite files with flipped bytes or hostile rows, read by everything that reads records."""

from __future__ import annotations

import contextlib
import functools
import json
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

from safelight.pages.data.overview import overview
from safelight.pages.data.run_list import entry
from safelight.pages.data.runs import describe
from safelight.pages.data.series import series
from safelight.record.history import open_history
from safelight.record.store import RecordWriter
from safelight.run import RunFolder
from torture.fuzz_child import Reader, watch
from torture.mutation import hostile, mutate
from torture.scenario import Scenario, Trial

SIGNALS = ("loss/mean", "gradient/norm", "lr", "held")
NUMBERS = (0, 1, -1, 63, 64, 2**31, 2**53, 2**62, -(2**62), 2**63 - 1, -(2**63))
HOSTILE = ("reading", "event", "finding", "picture", "rollup", "schema", "version")


def make_record(path: Path) -> bytes:
    """Two hundred steps, with events, findings and pictures."""
    record = RecordWriter(path, from_step=0, say=lambda words: None)
    for start in range(0, 200, 50):
        steps = np.arange(start, start + 50)
        values = np.random.default_rng(start).normal(size=(50, len(SIGNALS))).astype(np.float32)
        record.add_window(steps, SIGNALS, values)
    record.event(3, "refused", overflow=False, nonfinite_gradients=["a"])
    record.event(9, "stopped", first_nonfinite="here")
    record.finding(20, "SL101", cause="lr.too-high", severity="error", summary="words", step=20, evidence={}, fix={})
    record.picture(100, "samples", path.parent / "samples" / "step_00000100.png", (16, 16))
    record.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.execute("PRAGMA journal_mode = DELETE")
    return path.read_bytes()


def hostile_row(draw: random.Random, table: str) -> tuple[str, tuple[Any, ...]]:
    """A statement that a stranger could have made: types as the tables want them, and values as nobody expects."""
    number, other = draw.choice(NUMBERS), draw.choice(NUMBERS)
    facts = draw.choice([json.dumps(hostile(draw)), "", "{", "[" * 3000, "NaN", '{"a":' * 900, '"x"', "null", "7"])
    facts = facts.encode("utf-8", "replace").decode()
    name = draw.choice(["loss/mean", "", "../../etc/passwd", "<script>", "x" * 5000, "\0", "held"])
    blob = draw.randbytes(draw.choice([0, 1, 3, 4, 8, 256, 257]))
    real = draw.choice([0.0, 1e308, float("inf"), -1.0, None])
    rows: dict[str, tuple[str, tuple[Any, ...]]] = {
        "reading": ("INSERT OR REPLACE INTO reading VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                    (name, number, other, draw.choice(NUMBERS), 0, real, real, real, real, draw.choice([None, blob]),
                     blob)),
        "rollup": ("INSERT OR REPLACE INTO rollup VALUES (?,?,?,?,?,?,?,?,?,?)",
                   (name, draw.choice(NUMBERS), number, other, draw.choice(NUMBERS), 0, real, real, real, real)),
        "event": ("INSERT INTO event VALUES (NULL,?,?,?,?)", (number, real or 0.0, name or "refused", facts)),
        "finding": ("INSERT INTO finding VALUES (NULL,?,?,?,?)", (number, real or 0.0, name, facts)),
        "picture": ("INSERT OR REPLACE INTO picture VALUES (?,?,?,?,?)",
                    (name or "samples", number, name, number, other)),
        "version": (f"PRAGMA user_version = {draw.choice([0, 1, 2, 3, 2**31 - 1, -1])}", ()),
    }  # fmt: skip
    schema = draw.choice([
        "DROP TABLE event", "CREATE VIEW strange AS SELECT * FROM reading", "ALTER TABLE reading ADD COLUMN more TEXT",
        "CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM reading; END", "DROP TABLE picture",
        "DROP TABLE rollup",
        "ALTER TABLE finding RENAME TO found", "CREATE TABLE big (a)", "ALTER TABLE event RENAME COLUMN facts TO words",
    ])  # fmt: skip
    return (schema, ()) if table == "schema" else rows[table]


def make(draw: random.Random, sound: bytes) -> tuple[bytes, list[tuple[str, tuple[Any, ...]]]]:
    if draw.random() < 0.5:
        return sound, [hostile_row(draw, draw.choice(HOSTILE)) for _ in range(draw.randint(1, 4))]
    if draw.random() < 0.5:  # changes that leave the size of pages alone: most of the file is still read
        content = bytearray(sound)
        for _ in range(draw.randint(1, 30)):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        return bytes(content), []
    return mutate(sound, [sound], draw), []


def read(found: tuple[bytes, list[tuple[str, tuple[Any, ...]]]], run: RunFolder) -> None:
    """History answers in its own words; the pages never fail, whatever the record is."""
    content, statements = found
    for left in run.path.glob("record.sqlite*"):
        left.unlink()
    run.record.write_bytes(content)
    if statements:
        with contextlib.closing(sqlite3.connect(run.record, isolation_level=None)) as database:
            for statement, values in statements:
                with contextlib.suppress(sqlite3.Error):
                    database.execute(statement, values)
    seen = describe(run.path)
    json.dumps(overview(run, seen), allow_nan=False)
    json.dumps(entry(seen), allow_nan=False)
    with open_history(run.record, seconds=20) as history:
        for name in [*history.signals()[:6], "loss/mean"]:
            history.zoom(name)
            history.raw(name, 10, 120)
            history.total(name)
            history.since({name: 60}, 4096)
            history.last(name)
        json.dumps(series(history, ["loss/mean", "held"], smooth=10.0), allow_nan=False)
        history.events()
        history.findings()
        history.pictures()


def open_reader(trial: Trial) -> Reader:
    path = trial.folder / "run"
    shutil.rmtree(path, ignore_errors=True)
    (path / "samples").mkdir(parents=True)
    run = RunFolder(path)
    run.update_status(status="finished", step=200, steps=200)
    sound = make_record(run.record)
    read((sound, []), run)
    return Reader(functools.partial(make, sound=sound), functools.partial(read, run=run))


FUZZ_RECORDS = Scenario(
    "fuzz: records",
    "SQLite files with flipped bytes and with rows, tables and versions that a stranger made, read as history and by "
    "the pages of the dashboard.",
    "inputs", 1_500, 1_500, 60, 500, lambda trial: watch(trial, open_reader),
)  # fmt: skip
