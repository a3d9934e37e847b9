"""Settings are found by the field's words."""

from __future__ import annotations

from collections import Counter

import pytest

from safelight.config.resolve import types_of_fields
from safelight.config.search import WORDS, nearest_setting, search


def test_every_setting_in_the_table_exists_and_no_phrase_stands_twice() -> None:
    assert {key for keys in WORDS.values() for key in keys.split()} - types_of_fields().keys() == set()
    phrases = [phrase for each in WORDS for phrase in each.split("|")]
    assert [phrase for phrase, count in Counter(phrases).items() if count > 1] == []


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


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("train.ema", "ema.kind"), ("model.width", "model.widths"), ("train.step", "train.steps"),
        ("trian.sede", "train.seed"),
        ("optimizer.learning_rate", "optimizer.lr"), ("train.zzz", None), ("", None),
    ],
)  # fmt: skip
def test_the_nearest_setting(key: str, near: str | None) -> None:
    assert nearest_setting(key) == (f". Did you mean {near!r}?" if near else ".")
