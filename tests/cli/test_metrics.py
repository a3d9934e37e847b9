"""safelight metrics and safelight compare."""

from __future__ import annotations

import csv
import io
import json
import math
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from commands import ask, refused
from recorded_runs import STEPS, make_run

from safelight.record.store import RecordWriter


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    top = tmp_path_factory.mktemp("metrics")
    return str(make_run(top / "first")), str(make_run(top / "second", seed=7, offset=0.25, sick=False))


@pytest.mark.parametrize(("width", "meaning"), [(200, True), (120, False), (79, False)])
def test_the_page(runs, capsys, monkeypatch: pytest.MonkeyPatch, width: int, meaning: bool) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = ask(capsys, "metrics", runs[0])
    assert code == 0
    assert max(map(len, out.splitlines()[1:])) <= width
    [line] = [line for line in out.splitlines() if line.startswith("loss/mean")]
    assert "×" in line, "the NaN is seen in the curve"
    assert "█" in line
    assert "0.003333" in line
    assert ("Unweighted loss" in line) == meaning
    assert [line.split()[0] for line in out.splitlines()[2:]] == [
        "all/nan",
        "own",
        "loss/mean",
        "probe/ema",
    ]  # own first


def test_a_healthy_curve_has_no_mark(runs, capsys) -> None:
    code, out, _ = ask(capsys, "metrics", runs[1], "loss/mean")
    assert code == 0
    assert "×" not in out.splitlines()[2]


def test_json(runs, capsys) -> None:
    code, out, _ = ask(capsys, "metrics", runs[0], "--json")
    found = json.loads(out, parse_constant=pytest.fail)["signals"]
    assert code == 0
    loss = found["loss/mean"]
    assert (loss["first"], loss["last"], loss["count"], loss["nonfinite"]) == (0, 299, 300, 1)
    assert (loss["high"], loss["latest"]) == (1.0, pytest.approx(1 / 300))
    assert loss["recent"] == pytest.approx(np.mean([1 / (step + 1) for step in range(236, 300)]))
    assert "points" not in loss
    assert (found["own"]["unit"], found["own"]["meaning"]) == (None, None)
    assert (found["all/nan"]["nonfinite"], found["all/nan"]["low"], found["all/nan"]["latest"]) == (300, None, None)


def test_json_of_a_range_with_points(runs, capsys) -> None:
    _, out, _ = ask(capsys, "metrics", runs[0], "loss/mean", "--json", "--first=90", "--last", "109", "--points=5")
    found = json.loads(out, parse_constant=pytest.fail)["signals"]
    assert [*found] == ["loss/mean"]
    points = found["loss/mean"]["points"]
    assert (points["first"][0], points["last"][-1], sum(points["count"])) == (90, 109, 20)
    assert sum(points["nonfinite"]) == found["loss/mean"]["nonfinite"] == 1
    assert 5 <= len(points["mean"]) <= 20


def test_csv_has_every_reading(runs, capsys, tmp_path: Path) -> None:
    code, out, _ = ask(capsys, "metrics", runs[0], "--csv", "-")
    lines = list(csv.reader(io.StringIO(out)))
    assert code == 0
    assert lines[0] == ["signal", "step", "number"]
    assert len(lines) == 1 + 3 * STEPS + 6
    found = {int(step): np.float32(number) for signal, step, number in lines[1:] if signal == "loss/mean"}
    assert math.isnan(found[100])
    assert found[7] == np.float32(1 / 8)
    file = tmp_path / "out.csv"
    code, said, _ = ask(capsys, "metrics", runs[0], "--csv", str(file))
    assert (code, said.strip(), file.read_text()) == (0, str(file), out)


def test_csv_of_spans(runs, capsys) -> None:
    _, out, _ = ask(capsys, "metrics", runs[0], "all/nan", "probe/ema", "--csv=-", "--points=1")
    lines = list(csv.DictReader(io.StringIO(out)))
    assert sum(int(line["count"]) for line in lines) == STEPS + 6
    assert {line["low"] for line in lines if line["signal"] == "all/nan"} == {"nan"}


@pytest.mark.parametrize(
    ("code", "words", "arguments"),
    [
        (2, ["is no folder"], ["metrics", "{top}/none"]),
        (2, ["no signal 'loss/meen'", "Did you mean 'loss/mean'?"], ["metrics", "{first}", "loss/meen"]),
        (2, ["--first is 'x'", "a whole number"], ["metrics", "{first}", "--first", "x"]),
        (2, ["--points is 0, but it must be at least 1"], ["metrics", "{first}", "--points", "0"]),
        (2, ["--json and --csv exclude each other"], ["metrics", "{first}", "--json", "--csv", "-"]),
        (2, ["cannot be written", "--csv"], ["metrics", "{first}", "--csv", "{top}/none/x.csv"]),
        (2, ["needs at least two runs"], ["compare", "{first}"]),
        (2, ["needs at least two runs"], ["compare"]),
        (2, ["is no folder"], ["compare", "{first}", "{top}/none"]),
        (2, ["no signal 'owm'", "'own'"], ["compare", "{first}", "{first}", "--signal", "owm"]),
        (1, ["There is no record"], ["metrics", "{bare}"]),
        (1, ["has version 99"], ["metrics", "{newer}"]),
        (1, ["cannot be read"], ["metrics", "{garbage}"]),
    ],
)
def test_errors_in_words(runs, capsys, tmp_path: Path, code: int, words: list[str], arguments: list[str]) -> None:
    for name in ("bare", "newer", "garbage"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("train:\n  steps: 3\n")
    with sqlite3.connect(tmp_path / "newer" / "record.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    (tmp_path / "garbage" / "record.sqlite").write_text("words " * 1000)
    places = {"top": tmp_path, "first": runs[0], **{n: tmp_path / n for n in ("bare", "newer", "garbage")}}
    refused(capsys, code, words, *(argument.format(**places) for argument in arguments))


def test_names_in_a_record_reach_no_terminal_raw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also no markup: `[/x]` would be an error of rich."""
    record = RecordWriter(tmp_path / "record.sqlite", from_step=0, say=lambda words: None)
    record.add(0, {"[/x]": 1.0, "a\x1b]52;c;aGk=\x07\nforged\u202e": 2.0})
    record.close()
    for arguments in ([], ["--csv=-"], ["--json"], ["nothing\x1b"]):
        code, out, err = ask(capsys, "metrics", str(tmp_path), *arguments)
        assert code == (2 if arguments == ["nothing\x1b"] else 0), err
        assert not any(sign in out + err for sign in ("\x1b", "\x07", "\u202e"))
        assert "\nforged" not in out + err


def test_the_window_of_smoothing(runs, capsys) -> None:
    code, out, _ = ask(capsys, "metrics", runs[0], "loss/mean", "--smooth=1", "--json")
    assert code == 0
    found = json.loads(out)["signals"]["loss/mean"]
    assert found["recent"] == found["latest"]
    code, out, _ = ask(capsys, "metrics", runs[0], "loss/mean", "--smooth=4", "--csv=-")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "signal,step,number,smooth"
    numbers = [float(line.split(",")[2]) for line in lines[1:6]]
    assert float(lines[5].split(",")[3]) == pytest.approx(sum(numbers[1:5]) / 4, rel=1e-5)
    assert ask(capsys, "metrics", runs[0], "--smooth=4", "--points=3", "--json")[0] == 2
