"""`safelight explain`: all rules, or one of them."""

from __future__ import annotations

import json

import pytest

from safelight.cli import main


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) >= 8
    assert main(["explain", "model.no-gradient"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("MOD001")
    assert "Look-alikes." in page
    assert main(["explain", "LOS001", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"][0]["cause"] == "loss.nonfinite"
    assert main(["explain", "mode", "collapse"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("Mode collapse\n")
    assert page.index("DIV001") < page.index("DIV003")
    assert main(["explain", "nan", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["symptoms"][0]["codes"] == [rule["code"] for rule in found["rules"]]
    assert main(["explain", "SAM01"]) == 2
    assert "SAM0" in capsys.readouterr().err
