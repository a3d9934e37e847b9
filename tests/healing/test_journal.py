"""The journal: written, undone, saved and read again."""

from __future__ import annotations

import pytest

from safelight.errors import CheckpointError, UsageError
from safelight.healing.journal import Act, Journal, read_journal


def act(kind: str, since: int = 10, undone: int | None = None, **facts: object) -> Act:
    return Act(1, kind, 20, since, "a reason", facts, undone)  # type: ignore[arg-type]


def test_the_journal_comes_back_from_json() -> None:
    journal = Journal()
    journal.write("quarantine", step=4, since=4, reason="bad", facts={"samples": [1]})
    journal.write("lower-rate", step=9, since=4, reason="diverged", facts={"factor": 0.5, "warmup": None})
    journal.undo(1, 7)
    assert read_journal(journal.to_json()).acts == journal.acts
    assert read_journal(None).acts == ()
    assert [(each.number, each.kind, each.undone) for each in journal.acts] == [
        (1, "quarantine", 7),
        (2, "lower-rate", None),
    ]


@pytest.mark.parametrize("found", [[{"number": 1}], [{"step": 1, "surprise": 2}], 3])
def test_a_journal_that_cannot_be_read_ends_in_words(found: object) -> None:
    with pytest.raises(CheckpointError, match="journal"):
        read_journal(found)


def test_an_unknown_kind_ends_in_words() -> None:
    journal = Journal([act("redo")]).to_json()
    journal[0]["kind"] = "pray"
    with pytest.raises(CheckpointError, match="pray"):
        read_journal(journal)


@pytest.mark.parametrize(
    ("acts", "number", "words"), [(1, 2, "acts 1 to 1"), (0, 1, "Nothing was done"), (1, 0, "1 to 1")]
)
def test_undoing_what_was_not_done_ends_in_words(acts: int, number: int, words: str) -> None:
    journal = Journal([act("redo")][:acts])
    with pytest.raises(UsageError, match=words):
        journal.undo(number, 5)


def test_an_act_is_undone_once() -> None:
    journal = Journal([act("redo")])
    assert "Undone from step 50" in journal.undo(1, 50).describe()
    with pytest.raises(UsageError, match="already"):
        journal.undo(1, 60)
