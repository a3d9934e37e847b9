"""The one-file report: small enough for the longest run, safe from names in it, and whole without a network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from showcase import build_run

from safelight.pages.report.html import MAX_REPORT_BYTES, write_report
from safelight.run import RunFolder


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


def test_nothing_in_a_run_ends_the_data_early(tmp_path: Path) -> None:
    run = build_run(tmp_path / "x<script>alert(1)<")
    (run / "config.yaml").write_text("data: {source: '</script><script>alert(1)</script>'}\n")
    write_report(RunFolder(run), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<script") == 2
    assert "alert(1)</" not in page
    assert "</script>" in data_of(page)["run"]["config"]["data.source"]


def test_what_is_not_finite_ends_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules and charts compute with whatever an untrusted record holds."""
    monkeypatch.setattr("safelight.pages.report.html.clock", lambda *_: {"step": [1], "time": [float("nan")]})
    page = write_report(RunFolder(build_run(tmp_path / "run")), tmp_path / "report.html").read_text(encoding="utf-8")
    assert data_of(page)["clock"] == {"step": [1], "time": [None]}


@pytest.mark.parametrize("missing", ["record.sqlite", "data.json", "config.yaml", "samples"])
def test_a_run_that_lacks_something_still_has_a_report(tmp_path: Path, missing: str) -> None:
    run = build_run(tmp_path / "run")
    (run / missing).rename(tmp_path / "away")
    assert write_report(RunFolder(run), tmp_path / "report.html").stat().st_size < MAX_REPORT_BYTES


def test_training_leaves_a_report(trained_run: Path) -> None:
    report = data_of((trained_run / "report.html").read_text(encoding="utf-8"))
    assert report["run"]["state"] == "finished"
    assert report["series"]["loss/mean"]["x"] == [0, 1, 2, 3, 4, 5]


def test_a_report_that_fails_costs_one_line(
    train_tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr("safelight.runner.write_report", fail)
    run = train_tiny("without-report")
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert capsys.readouterr().err.count("The report could not be made (MemoryError: no room)") == 1


def test_the_report_needs_neither_torch_nor_the_web(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    code = (
        "import sys; from pathlib import Path; from safelight.run import RunFolder; "
        "from safelight.pages.report.html import write_report; "
        "write_report(RunFolder(Path(sys.argv[1])), Path(sys.argv[2])); "
        "print([n for n in ('torch', 'starlette', 'uvicorn') if n in sys.modules])"
    )
    asked = [sys.executable, "-c", code, str(run), str(tmp_path / "report.html")]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip() == "[]"
