"""Runs are found wherever they lie, and told as they are: live, silent, ended, or not readable at all."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from folders import FINDING, draw_picture, make_run

from safelight.errors import RecordError
from safelight.pages.data.cards import card, command
from safelight.pages.data.gallery import current_path, find_pictures, pictures
from safelight.pages.data.overview import open_run_history, overview
from safelight.pages.data.run_list import compare_runs, entry
from safelight.pages.data.run_state import read_status
from safelight.pages.data.runs import describe, find_runs
from safelight.pages.data.verdict import verdict
from safelight.record.store import RecordWriter
from safelight.run import RunFolder


def test_runs_are_found_once_at_every_depth(tmp_path: Path) -> None:
    for name in ("one", "group/two", "too/far/down/four"):
        make_run(tmp_path / name, steps=4, pictures=False)
    (tmp_path / "latest").symlink_to("one")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "run.json").write_text("{}")
    found = find_runs([tmp_path, tmp_path / "one"])
    assert [run.name for run in found] == ["group/two", "one"]
    assert len({run.id for run in found}) == 2
    assert [run.name for run in find_runs([tmp_path / "one"])] == ["one"]
    assert find_runs([tmp_path / "one"])[0].id == found[1].id
    assert find_runs([tmp_path / "none"]) == []


STATES = [
    ({}, 0, "finished", "ended"),
    ({"status": "training"}, 0, "live", "good"),
    ({"status": "training", "kind": "watched"}, 0, "watched", "good"),
    ({"status": "training"}, 40, "stale", "attention"),
    ({"status": "training"}, 90_000, "stale", "attention"),
    ({"status": "crashed", "error": "ValueError: no"}, 9, "crashed", "bad"),
    ({"status": "out of memory"}, 9, "crashed", "bad"),
    ({"status": "unsaved"}, 9, "crashed", "bad"),
    ({"status": "interrupted"}, 9, "interrupted", "ended"),
    ({"status": "stopped", "last_finding": "non-finite: loss"}, 9, "stopped", "bad"),
    ({"status": "refused", "last_finding": "data.blank"}, 9, "refused", "bad"),
    ({"status": "ended"}, 9, "finished", "ended"),
    ({"status": "from the future"}, 9, "stopped", "bad"),
]
SAID = {
    "finished": "Finished at step 200",
    "live": "Healthy: loss still falling at",
    "watched": "Healthy: loss still falling at",
    "crashed": "at step 200",
    "interrupted": "safelight resume",
    "stopped": "Stopped at step 200",
    "refused": "Not trained: data.blank",
}


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("states") / "run")


@pytest.mark.parametrize(("facts", "age", "state", "tone"), STATES)
def test_every_state_has_its_sentence(ready: Path, facts, age, state, tone, monkeypatch) -> None:
    monkeypatch.setattr("safelight.pages.data.run_state.time", SimpleNamespace(time=lambda: 2e9))
    known = {"status": "finished", "step": 200, "steps": 200, "heartbeat": 2e9 - age}
    (ready / "run.json").write_text(json.dumps(known | facts))
    found = entry(describe(ready))
    assert (found["state"], found["verdict"]["tone"]) == (state, tone)
    if state == "stale":
        words = "No heartbeat for 40 s" if age == 40 else "25 hours"
        assert words in found["verdict"]["sentence"]
    else:
        assert SAID[state] in found["verdict"]["sentence"]


def test_a_folder_without_anything_waits(tmp_path: Path) -> None:
    found = overview(RunFolder(tmp_path))
    assert (found["state"], found["verdict"]["tone"]) == ("empty", "waiting")
    assert found["signals"] == found["pictures"] == []


def test_the_verdict_names_the_finding_and_then_health(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", status={"status": "training"}, findings=(FINDING,))
    found = entry(describe(run))
    assert found["verdict"] == {"tone": "bad", "sentence": FINDING["summary"]}
    assert found["finding"] == {"code": "LRA001", "cause": "lr.too-high", "severity": "error"}
    over = make_run(tmp_path / "b", status={"status": "training"}, findings=(FINDING, FINDING | {"over": 90}))
    assert entry(describe(over))["verdict"]["tone"] == "good"
    info = make_run(tmp_path / "c", status={"status": "training"}, findings=(FINDING | {"severity": "info"},))
    assert entry(describe(info))["verdict"]["tone"] == "good"


@pytest.mark.parametrize(
    ("distances", "words"),
    [
        ([(50, 40.0, None)], "FD-lite0 40 ± 2."),
        ([(50, 40.0, None), (100, 31.2, True)], "FD-lite0 31 ± 2 and improving."),
        ([(50, 40.0, None), (100, 41.0, False)], "FD-lite0 41 ± 2, no better than at step 50."),
    ],
)
def test_the_distance_is_told_with_its_error(tmp_path: Path, distances, words) -> None:
    run = make_run(tmp_path / "a", status={"status": "training", "step": 300})
    record = RecordWriter(run / "record.sqlite", from_step=200, say=print)
    for step, value, better in distances:
        against = {} if better is None else {"against": {"step": 50, "better": better, "p": 0.01}}
        record.add(200 + step, {"quality/distance": value, "quality/distance_error": 2.1})
        record.event(200 + step, "evaluated", after=201 + step, label="FD-lite0", **against)
    record.close()
    found = overview(RunFolder(run))
    assert found["verdict"]["sentence"].endswith(words)
    assert found["distance"] == [distances[-1][1], 2.1, 201 + distances[-1][0]]


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


def test_runs_are_compared_by_what_differs(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one")
    two = make_run(tmp_path / "two", config="train:\n  batch_size: 16\n  steps: 200\n")
    watched = make_run(tmp_path / "watched", config=None)
    found = compare_runs([describe(each) for each in (one, two, watched)])
    assert found["settings"] == {"train.batch_size": [8, 16, None]}
    assert [run["name"] for run in found["runs"]] == ["one", "two", "watched"]
    assert all(run["pictures"] and run["signals"] for run in found["runs"])


# Runs from strangers


def test_pictures_are_shown_only_from_inside_the_run(tmp_path: Path) -> None:
    run, outside = make_run(tmp_path / "run", pictures=False), draw_picture(tmp_path, "secret.png")
    draw_picture(run, "samples/good.png")
    (run / "samples" / "link.png").symlink_to(outside)
    (run / "samples" / "dir").symlink_to(tmp_path)
    (run / "samples" / "folder.png").mkdir()
    os.mkfifo(run / "samples" / "pipe.png")
    (run / "samples" / "text.txt").write_text("words")
    (run / "samples" / "loop.png").symlink_to("loop.png")
    record = RecordWriter(run / "record.sqlite", from_step=200, say=print)
    names = ["samples/good.png", "../secret.png", str(outside), "samples/link.png", "samples/dir/secret.png",
             "samples/folder.png", "samples/pipe.png", "samples/text.txt", "samples/loop.png", "samples/none.png",
             "samples/../../secret.png", "/etc/passwd", "run.json", "", ".", "a\0b.png",
             "x" * 5000 + ".png"]  # fmt: skip
    for step, name in enumerate(names):
        record._note("picture VALUES (?, ?, ?, ?, ?)", "samples", step, name, 8, 8)
    record.close()
    with open_run_history(RunFolder(run)) as history:
        shown = pictures(history, RunFolder(run), "x")
        assert [each["step"] for each in shown] == [0]
        found = find_pictures(history, RunFolder(run))
        good = found[shown[0]["id"]]
        assert list(found) == [each["id"] for each in shown]
        assert good.path == (run / "samples" / "good.png").resolve()
        assert current_path(RunFolder(run), good) == good.path
        assert current_path(RunFolder(run), replace(good, id="0" * 16)) is None
        good.path.write_bytes(good.path.read_bytes() + b"another")
        assert current_path(RunFolder(run), good) is None


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
    with open_run_history(RunFolder(run)) as history:
        history.limit(-1.0)

        def ask_for_long() -> None:
            for _ in range(20_000):
                history.signals()

        with pytest.raises(RecordError, match="interrupted"):
            ask_for_long()


@pytest.mark.parametrize(
    ("settings", "name", "shown"),
    [
        ({"optimizer.lr": 0.001}, "runs/a", "safelight train --config runs/a/config.yaml --set optimizer.lr=0.001"),
        ({"optimizer.lr": "1; reboot"}, "a", "safelight train --config a/config.yaml --set 'optimizer.lr=1; reboot'"),
        ({"optimizer.lr": "$(id)"}, "a b", "safelight train --config 'a b/config.yaml' --set 'optimizer.lr=$(id)'"),
        ({"optimizer.lr": "1\nreboot"}, "a", None),
        ({"optimizer.lr": "\x1b]0;x"}, "a", None),
        ({"; reboot": 1}, "a", None),
        ({"ema.profiles": [0.05, 0.1], "model.conditional": True}, "a",
         "safelight train --config a/config.yaml --set 'ema.profiles=[0.05, 0.1]' --set model.conditional=true"),
        ({}, "a", None),
    ],
)  # fmt: skip
def test_a_command_can_be_pasted_without_fear(tmp_path: Path, settings, name, shown) -> None:
    run = RunFolder(make_run(tmp_path / "a", steps=4, pictures=False))
    assert command(run, name, settings, "unsafe") == shown


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"code": 5, "cause": None, "severity": "fatal", "step": "x", "evidence": "none", "fix": [], "ruled_out": 3},
        {"evidence": [1, {"value": float("nan"), "steps": [1]}, {"steps": [1, "b"], "signal": {}}], "over": 1.5},
        {"fix": {"set": [1], "text": 7, "safety": {}}, "ruled_out": [1, None], "confidence": "sure"},
    ],
)
def test_a_card_has_every_field_whatever_was_recorded(tmp_path: Path, facts) -> None:
    found = card(facts, RunFolder(tmp_path), [], "a")
    json.dumps(found, allow_nan=False)
    whole = card(FINDING, RunFolder(tmp_path), [], "a")
    assert found.keys() == whole.keys()
    assert found["severity"] == "info"


def test_a_verdict_needs_no_record(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", status={"status": "training", "step": 0})
    assert verdict(read_status(RunFolder(run)), None, [])["tone"] == "waiting"
