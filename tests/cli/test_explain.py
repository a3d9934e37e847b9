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
    assert main(["explain", "SAM01"]) == 2
    assert "SAM0" in capsys.readouterr().err
