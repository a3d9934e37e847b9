"""Settings are found by the field's words."""

from __future__ import annotations

import pytest

from safelight.config.resolve import types_of_fields
from safelight.config.search import search


@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("mixed precision", "train.precision"), ("Mixed-Precision", "train.precision"),
        ("--learning_rate", "optimizer.lr"),
        ("ema decay", "ema.kind"), ("ema.decay", "ema.decay"), ("clipping", "clipping.kind"), ("mirror", "data.flip"),
        ("unreadable files", "data.max_bad"), ("transparent", "data.background"), ("xyzzy", None),
    ],
)  # fmt: skip
def test_words(word: str, first: str | None) -> None:
    found = search(word).settings
    assert (found[0].key if found else None) == first


def test_without_a_word_all_are_listed() -> None:
    assert [setting.key for setting in search("").settings] == [*types_of_fields()]


def test_what_is_always_so_has_a_note() -> None:
    assert "pinned" in search("pin_memory").notes[0]
    assert "scaled_dot_product_attention" in search("flash attention").notes[0]
    assert search("dropout").notes == []
