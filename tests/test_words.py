"""Sizes and names in words."""

from __future__ import annotations

import pytest

from safelight.words import in_bytes, megabytes, printable


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_536_000, "1.54 MB"), (2e9, "2 GB"), (3.5e12, "3.5 TB")],
)  # fmt: skip
def test_sizes(count: float, words: str) -> None:
    assert in_bytes(count) == words


def test_megabytes_have_one_digit() -> None:
    assert megabytes(1_234_567_890) == "1,234.6 MB"


@pytest.mark.parametrize(
    ("name", "words"), [("a.png", "a.png"), ("ä 1.png", "ä 1.png"), ("bad\udcff.png", "bad\\udcff.png")]
)
def test_names_that_are_no_text_can_be_printed(name: str, words: str) -> None:
    assert printable(name) == words
