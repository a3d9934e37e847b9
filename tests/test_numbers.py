"""One run, seen from everywhere: each number is the same wherever it is shown (CONTRIBUTING.md has the table)."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tiny import tiny

from safelight.cli import main
from safelight.pages.data.overview import overview
from safelight.pages.data.run_list import entry
from safelight.pages.data.runs import describe
from safelight.run import RunFolder
from safelight.start import resume, train
from safelight.terminal import Terminal, duration
from safelight.words import with_error

SETTINGS: dict[str, Any] = {
    "train.steps": 70, "evaluate.every": 35, "evaluate.samples": 32, "evaluate.components": 4,
    "evaluate.references": 120, "sample.count": 8, "checkpoint.every": 35,
}  # fmt: skip
SHOWN = ("step", "steps", "seconds", "speed", "best_step", "distance", "images_seen", "verdict")


@dataclass(frozen=True)
class Seen:
    """What each surface says of one run."""

    screen: str
    status: dict[str, Any]
    page: dict[str, Any]
    line: dict[str, Any]
    compared: dict[str, Any]
    table: str
    metrics: dict[str, Any]
    report: dict[str, Any]
    diagnosed: dict[str, Any]

    def result(self, pattern: str) -> str:
        found = re.search(pattern, self.screen)
        assert found is not None, self.screen
        return found[1]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    path, out = tmp_path_factory.mktemp("numbers") / "run", io.StringIO()
    train(tiny(**SETTINGS), run=path, terminal=Terminal(Console(file=out, width=300)))
    folder = RunFolder(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "300")

        def read(*words: str) -> str:
            printed = io.StringIO()
            patch.setattr("sys.stdout", printed)
            assert main([*words]) == 0
            return printed.getvalue()

        compared = json.loads(read("compare", str(path), str(path), "--json"))["runs"][0]
        table = read("compare", str(path), str(path))
        metrics = json.loads(read("metrics", str(path), "--json"))["signals"]
        diagnosed = json.loads(read("doctor", str(path), "--json"))
    page = overview(folder)
    embedded = re.search(r'id="report-data">(.*?)</script>', folder.report_page.read_text())
    assert embedded is not None
    report = json.loads(embedded[1])["run"]
    line = entry(describe(path))
    return Seen(out.getvalue(), folder.status(), page, line, compared, table, metrics, report, diagnosed)


def test_the_loss(seen: Seen) -> None:
    recent = seen.metrics["loss/mean"]["recent"]
    assert seen.result(r"result +step 70, loss (\S+),") == f"{recent:.4g}"
    assert seen.result(r"step 70/70  loss (\S+) ") == f"{recent:.4g}"
    assert seen.compared["signals"]["loss/mean"]["recent"] == recent


def test_the_time(seen: Seen) -> None:
    seconds = seen.status["seconds"]
    assert seconds > 0
    assert seen.result(r"done in (\S+)") == duration(seconds)
    assert seen.compared["seconds"] == seconds
    assert seen.page["seconds"] == seen.line["seconds"] == pytest.approx(seconds, rel=1e-5)


def test_the_speed(seen: Seen) -> None:
    assert seen.result(r"step 70/70 .* (\S+) images/s") == f"{seen.page['speed']:,.0f}"
    assert seen.metrics["speed/images"]["latest"] == pytest.approx(seen.page["speed"], rel=1e-5)
    assert seen.line["speed"] == seen.page["speed"]


def test_the_best_step(seen: Seen) -> None:
    best = int(seen.result(r"best at step (\d+)"))
    assert best in (35, 70)
    assert seen.status["best_step"] == seen.status["evaluation"]["step"] == best
    assert seen.page["best_step"] == seen.compared["best_step"] == best
    assert f"step {best}, " in next(line for line in seen.table.splitlines() if "best checkpoint" in line)
    assert seen.compared["signals"]["probe/ema"]["best_step"] in (35, 70), "as checkpoints are called"


def test_the_distance(seen: Seen) -> None:
    scored = seen.status["evaluation"]
    words = f"{scored['label']} {with_error(max(scored['distance'], 0), scored['error'])} on fresh noise"
    assert words in seen.result("best at step (.*)")
    assert words in seen.table
    shown = [max(scored["distance"], 0), scored["error"], scored["step"]]
    assert seen.page["distance"] == seen.line["distance"] == pytest.approx(shown, rel=1e-5)


def test_a_resume_goes_on_counting_the_time(tmp_path: Path) -> None:
    train(tiny(**{"train.steps": 4}), run=tmp_path / "run", terminal=Terminal(quiet=True))
    folder = RunFolder(tmp_path / "run")
    before = folder.status()["seconds"] + 100.0
    folder.update_status(seconds=before)
    resume(tmp_path / "run", settings={"train.steps": 6}, force=True, terminal=Terminal(quiet=True))
    assert before < folder.status()["seconds"] < before + 60


def test_the_verdict_with_how_many_rules_could_look(seen: Seen) -> None:
    words = seen.diagnosed["verdict"]
    assert f"{seen.diagnosed['coverage']['looked']} of {seen.diagnosed['coverage']['rules']} rules" in words
    assert words in seen.page["verdict"]["sentence"]
    assert words in " ".join(seen.screen.split())


def test_the_report(seen: Seen) -> None:
    assert {name: seen.report[name] for name in SHOWN} == {name: seen.page[name] for name in SHOWN}
