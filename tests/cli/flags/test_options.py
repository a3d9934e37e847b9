"""Flags become settings, and whole numbers have a least value."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from safelight.cli.flags.options import make_room, number, settings_from, starting, whole
from safelight.errors import UsageError
from safelight.pages.notify import process
from safelight.pages.server import launch


@pytest.mark.parametrize("is_wanted", [True, False])
@pytest.mark.parametrize("is_refused", [True, False])
@pytest.mark.parametrize("given", ["flag", "variable", "nothing"])
def test_what_is_started_beside_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_wanted: bool, is_refused: bool, given: str
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(launch, "wanted", lambda: is_wanted)
    monkeypatch.setattr(launch, "start_beside", lambda run, say: begun.append("dashboard"))
    monkeypatch.setattr(process, "start_notifier", lambda run, address, say: begun.append(address.url))
    monkeypatch.delenv(process.VARIABLE, raising=False)
    if given == "variable":
        monkeypatch.setenv(process.VARIABLE, "http://here/")
    starting(is_refused, "http://here/" if given == "flag" else None)(tmp_path, print)
    assert begun == ["dashboard"] * (is_wanted and not is_refused) + ["http://here/"] * (given != "nothing")


def test_a_wrong_address_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(UsageError, match="--notify takes"):
        starting(True, "nobody")


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
