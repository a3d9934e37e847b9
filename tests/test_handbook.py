"""The pages of the documentation, and where else a word is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelight import handbook
from safelight.errors import UsageError

ROOT = Path(__file__).parents[1]


def test_the_installed_pages_are_those_of_the_repository() -> None:
    names = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    assert handbook.pages() == names


def test_without_pages_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handbook, "__file__", str(tmp_path / "a" / "handbook.py"))
    with pytest.raises(UsageError, match="The pages are not installed here"):
        handbook.pages()


def test_sections() -> None:
    assert list(handbook.sections("# A\nx\n## B\ny\n")) == [("A", "x\n"), ("B", "y\n")]


@pytest.mark.parametrize(
    ("besides", "named"),
    [("explain", ["settings", "docs"]), ("settings", ["explain", "docs"]), ("docs", ["explain", "settings"])],
)
def test_the_other_commands_that_know_a_word_are_named(besides: str, named: list[str]) -> None:
    said = handbook.elsewhere("gradient clipping", besides=besides)
    assert [command for command in ("explain", "settings", "docs") if f"`safelight {command} " in said] == named


def test_nothing_is_said_of_an_unknown_word() -> None:
    assert [handbook.elsewhere("xyzzy", besides=command) for command in ("explain", "settings", "docs")] == [""] * 3
