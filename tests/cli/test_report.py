"""`safelight report`: one file, and refusals in words."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from showcase import build_run

from safelight.cli import main


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


def test_the_report_is_one_file_with_everything_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = build_run(tmp_path / "run", sick=True)
    out = tmp_path / "out" / "report.html"
    out.parent.mkdir()
    assert main(["report", str(run), "-o", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    page = out.read_text(encoding="utf-8")
    report = data_of(page)
    assert {"loss/mean", "gradient/part/conv_in", "quality/distance"} <= set(report["series"])
    assert len(report["pictures"]) == len(report["run"]["pictures"]) == 13
    assert [finding["code"] for finding in report["run"]["findings"]] == ["SYS001", "LRA001"]
    assert sum(report["series"]["loss/mean"]["nonfinite"]) == 1
    assert str(tmp_path) not in page
    assert re.findall(r"""(?:src|href)=["'](?!data:|#)""", page) == []


def test_a_folder_that_is_no_run_is_told_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "no config.yaml" in capsys.readouterr().err
    run = build_run(tmp_path / "run")
    assert main(["report", str(run), "-o", str(tmp_path)]) == 2
    assert main(["report", str(run), "-o", str(tmp_path / "no" / "such" / "file.html")]) == 2
