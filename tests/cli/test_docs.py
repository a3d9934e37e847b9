"""`safelight docs`: a page, or the places where words stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from safelight.cli import docs, main
from safelight.errors import UsageError

ROOT = Path(__file__).parents[2]


def test_the_installed_pages_are_those_of_the_repository() -> None:
    names = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    assert docs.pages() == names


def test_without_pages_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "__file__", str(tmp_path / "a" / "b" / "docs.py"))
    with pytest.raises(UsageError, match="The pages are not installed here"):
        docs.pages()


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


def test_sections() -> None:
    assert list(docs.sections("# A\nx\n## B\ny\n")) == [("A", "x\n"), ("B", "y\n")]
