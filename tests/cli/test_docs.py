"""`safelight docs`: a page, or the places where words stand."""

from __future__ import annotations

import json

import pytest

from safelight.cli import main


def test_pages_and_places(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    assert "quickstart" in capsys.readouterr().out
    assert main(["docs", "run-folder.md"]) == 0
    assert capsys.readouterr().out.startswith("# ")
    assert main(["docs", "mode", "collapse"]) == 0
    assert capsys.readouterr().out.startswith("symptoms: Mode collapse\n")
    assert main(["docs", "zero terminal snr", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["places"]
    assert main(["docs", "xyzzy"]) == 2
    assert "No page of the documentation says 'xyzzy'" in capsys.readouterr().err
