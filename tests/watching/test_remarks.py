"""A sentence of a watch is said once."""

from __future__ import annotations

from safelight.watching.remarks import WarnOnce


def test_every_sentence_is_said_once() -> None:
    said: list[str] = []
    remarks = WarnOnce(said.append)
    for text in ("One.", "Two.", "One."):
        remarks.once(text)
    assert said == ["Safelight's watch: One.", "Safelight's watch: Two."]
    assert [remarks.is_new("three"), remarks.is_new("three"), remarks.is_new("One.")] == [True, False, False]
