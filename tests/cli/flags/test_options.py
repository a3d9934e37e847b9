"""Flags become settings, and whole numbers have a least value."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from safelight.cli.flags.options import dashboard_unless, make_room, number, settings_from, whole
from safelight.errors import UsageError
from safelight.pages.server import launch


def test_the_command_line_starts_it_and_the_library_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "wanted", lambda: True)
    assert dashboard_unless(False) is launch.start_beside
    assert dashboard_unless(True) is None
    monkeypatch.setattr(launch, "wanted", lambda: False)
    assert dashboard_unless(False) is None


@pytest.mark.parametrize(
    ("word", "least", "value"),
    [(None, 1, None), ("5", None, 5), ("1", 1, 1), ("-3", None, -3)],
)
def test_whole_numbers(word: str | None, least: int | None, value: int | None) -> None:
    assert whole("--points", word, least) == value


@pytest.mark.parametrize(("word", "words"), [("0", "is 0, but it must be at least 1"), ("x", "--points is 'x'")])
def test_other_words_are_refused(word: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        number("--points", word, at_least=1)


def test_set_wins_over_flags_and_needs_a_value() -> None:
    command = SimpleNamespace(steps="5", heal=False, lr=None, set=("train.steps = 7", "log.to=a=b"))
    assert settings_from(command) == {"train.steps": "7", "log.to": "a=b"}
    with pytest.raises(UsageError, match="has no “=”"):
        settings_from(SimpleNamespace(set=("train.steps",)))


def test_what_cannot_be_written_is_said_with_the_flag_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot be written: Not a directory\. Choose another place with -o"):
        make_room(tmp_path / "file" / "folder")
    make_room(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
