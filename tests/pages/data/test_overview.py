"""The overview has all that the page of a run needs, and opens a foreign folder without harm."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from folders import FINDING, make_run

from safelight.errors import RecordError
from safelight.pages.data.overview import open_run_history, overview
from safelight.pages.data.run_list import compare_runs, entry
from safelight.pages.data.runs import describe
from safelight.record.store import RecordWriter
from safelight.run import RunFolder


def test_a_folder_without_anything_waits(tmp_path: Path) -> None:
    found = overview(RunFolder(tmp_path))
    assert (found["state"], found["verdict"]["tone"]) == ("empty", "waiting")
    assert found["signals"] == found["pictures"] == []


def test_an_overview_has_all_the_page_needs(tmp_path: Path) -> None:
    act = {"number": 1, "kind": "lower-rate", "step": 41, "since": 0, "reason": "it diverged", "facts": {}}
    run = make_run(tmp_path / "a", findings=(FINDING,), status={"status": "training", "journal": [act]})
    found = overview(RunFolder(run))
    json.dumps(found, allow_nan=False)
    assert found["config"]["train.batch_size"] == found["batch_size"] == 8
    assert found["images_seen"] == 1600
    assert found["cursor"] == 199
    assert {"name": "loss/mean", "unit": "1", "meaning": "Unweighted loss of the step's batch.", "family": False,
            "first": 0, "last": 199} in found["signals"]  # fmt: skip
    assert [p["kind"] for p in found["pictures"]] == ["denoising", "samples"] * 2
    [one] = found["findings"]
    assert one["healed"][0]["kind"] == "lower-rate"
    assert one["command"] == f"safelight train --config {run}/config.yaml --set optimizer.lr=0.001"
    assert (found["left"], found["speed"]) == (9, 100)
    again = overview(RunFolder(run))
    assert again["version"] == found["version"]
    record = RecordWriter(run / "record.sqlite", from_step=200, say=print)
    record.add(200, {"loss/mean": 1.0})
    record.flush(wait=True)
    assert overview(RunFolder(run))["version"] == found["version"]  # readings alone do not change it
    record.event(200, "note")
    record.close()
    assert overview(RunFolder(run))["version"] != found["version"]


def test_a_longer_run_is_advised_only_where_nothing_is_open(tmp_path: Path) -> None:
    sentences = []
    for name, found in (("a", ()), ("b", (FINDING,))):
        run = make_run(tmp_path / name, findings=found, status={"status": "training"})
        record = RecordWriter(run / "record.sqlite", from_step=200, say=print)
        for step in range(200, 500):
            record.add(step, {"loss/mean": 100 / step})
        record.close()
        sentences.append(overview(RunFolder(run))["progress"]["sentence"])
    assert sentences[0].endswith("train longer.")
    assert sentences[1] == sentences[0].replace(": train longer", "")


def rewrite(statements: list[str], path: Path) -> None:
    database = sqlite3.connect(path / "record.sqlite")
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


def corrupt(path: Path) -> None:
    content = bytearray((path / "record.sqlite").read_bytes())
    content[4096 : len(content) : 7] = b"\xff" * len(content[4096 : len(content) : 7])
    (path / "record.sqlite").write_bytes(content)


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"


LOOSE = "CREATE TABLE reading (signal, first, last, count, nonfinite, low, high, mean, latest, steps, numbers)"


STATISTICS = "1 count, 0 nonfinite, 1 low, 1 high, 1 mean, 1 latest"


RECORDS: dict[str, list[str]] = {
    "an endless view": [
        "DROP TABLE picture",
        f"CREATE VIEW picture AS {ENDLESS} 'a' kind, x step, 'b' path, 1 width, 1 height FROM n",
    ],
    "endless readings": [
        "DROP TABLE reading",
        f"CREATE VIEW reading AS {ENDLESS} 'a' signal, x first, x last, {STATISTICS}, NULL steps, x'00' numbers FROM n",
    ],
    "a table that computes": [
        "DROP TABLE finding",
        "CREATE TABLE finding (id INTEGER PRIMARY KEY, step INTEGER, time REAL, code TEXT, "
        "facts TEXT GENERATED ALWAYS AS (hex(zeroblob(40000000))))",
        "INSERT INTO finding (step, time, code) VALUES (1, 1, 'x')",
    ],
    "a virtual table": ["DROP TABLE event", "CREATE VIRTUAL TABLE event USING fts5(id, step, time, kind, facts)"],
    "a billion steps in a row": [
        "UPDATE reading SET last = 4000000000000000000, steps = NULL WHERE signal = 'loss/mean' AND first = 0"
    ],
    "wrong types": [
        "DROP TABLE reading",
        LOOSE,
        "INSERT INTO reading VALUES ('loss/mean', 'a', x'00', 'b', 1.5, 'low', x'ff', NULL, 'z', 'steps', 'numbers')",
    ],
    "numbers as text": [
        "DROP TABLE reading",
        LOOSE,
        "INSERT INTO reading VALUES (5, 0, 1, 2, 0, 1, 1, 1, 1, NULL, 'abcdefgh')",
    ],
    "a value without end": ["INSERT INTO event VALUES (NULL, 1, 1, 'x', hex(zeroblob(34000000)))"],
    "bad JSON": ["INSERT INTO event VALUES (NULL, 1, 1, 'x', '{bad')"],
    "deep JSON": [f"INSERT INTO event VALUES (NULL, 1, 1, 'x', '{'[' * 50_000}')"],
    "JSON that is no object": [
        "INSERT INTO event VALUES (NULL, 1, 1, 'evaluated', '[1]')",
        "INSERT INTO finding VALUES (NULL, 1, 1, 'x', '7')",
    ],
    "strange times": ["INSERT INTO event VALUES (NULL, 9000000000000000000, 9e999, 'x', '{}')"],
    "no tables": [f"DROP TABLE {name}" for name in ("reading", "rollup", "event", "finding", "picture")],
    "a newer version": ["PRAGMA user_version = 99"],
}


WILD = {"status": {}, "step": "x", "steps": 1e400, "heartbeat": [], "journal": 5, "evaluation": "best", "versions": 7,
        "created": -1e300}  # fmt: skip


FILES: dict[str, tuple[str, str | bytes]] = {
    "no database": ("record.sqlite", b"<script>alert(1)</script>" * 1000),
    "empty": ("record.sqlite", b""),
    "status that is a list": ("run.json", "[1, 2]"),
    "status of wild types": ("run.json", json.dumps(WILD)),
    "deep status": ("run.json", "[" * 100_000),
    "huge status": ("run.json", json.dumps({"status": "x" * (9 << 20)})),
    "foreign settings": ("config.yaml", "!!python/object/apply:os.system ['touch owned']"),
    "settings without end": ("config.yaml", "a: &a [x]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\nd: [*c,*c,*c]\n"),
    "data that is a list": ("data.json", "[1]"),
    "wild data": ("data.json", json.dumps({"images": 3, "rejected": "all", "x": [[[[[[[[[[[1]]]]]]]]]]]})),
}


def cut_short(path: Path) -> None:
    (path / "record.sqlite").write_bytes((path / "record.sqlite").read_bytes()[:5000])


def pipe_as(name: str, path: Path) -> None:
    (path / name).unlink()
    os.mkfifo(path / name)


def links_out(path: Path) -> None:
    for name in ("run.json", "config.yaml", "record.sqlite"):
        (path / name).unlink()
        (path / name).symlink_to(path.parent / "secret.json")


def folder_as_record(path: Path) -> None:
    (path / "record.sqlite").unlink()
    (path / "record.sqlite").mkdir()


def write(name: str, content: str | bytes, path: Path) -> None:
    (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())


HOSTILE: dict[str, Callable[[Path], None]] = {
    "corrupt": corrupt,
    "cut short": cut_short,
    "links out": links_out,
    "a folder as record": folder_as_record,
    **{f"a pipe as {name}": partial(pipe_as, name) for name in ("run.json", "record.sqlite", "config.yaml")},
    **{deed: partial(rewrite, statements) for deed, statements in RECORDS.items()},
    **{deed: partial(write, *what) for deed, what in FILES.items()},
}


@pytest.mark.parametrize("deed", HOSTILE)
def test_a_strangers_folder_is_opened_without_harm(tmp_path: Path, deed: str) -> None:
    """Whatever lies in it: words or numbers in the end, never an exception beyond ours, never what lies outside."""
    (tmp_path / "secret.json").write_text(json.dumps({"status": "CANARY", "error": "CANARY"}))
    run = make_run(tmp_path / "run", findings=(FINDING,))
    HOSTILE[deed](run)
    found = overview(RunFolder(run))
    line = entry(describe(run))
    compared = compare_runs([describe(run)])
    text = json.dumps([found, line, compared], allow_nan=False)
    assert "CANARY" not in text
    assert len(text) < 2_000_000
    assert found["id"] == line["id"]


def test_a_record_that_never_ends_is_given_up(tmp_path: Path) -> None:
    """Even where it is built from plain tables: a limit of time holds for every question."""
    run = make_run(tmp_path / "run")

    def read_for_long() -> None:
        with open_run_history(RunFolder(run), seconds=-1.0) as history:
            for _ in range(20_000):
                history.signals()

    with pytest.raises(RecordError, match="interrupted"):
        read_for_long()
