"""Phrases lead to settings that exist, and a wrong name to the setting that was meant."""

from __future__ import annotations

from collections import Counter

import pytest

from safelight.config.aliases import INSTEAD_OF_FLAG
from safelight.config.phrases import WORDS, nearest_setting
from safelight.config.resolve import types_of_fields


def test_every_setting_in_the_table_exists_and_no_phrase_stands_twice() -> None:
    assert {key for keys in WORDS.values() for key in keys.split()} - types_of_fields().keys() == set()
    phrases = [phrase for each in WORDS for phrase in each.split("|")]
    assert [phrase for phrase, count in Counter(phrases).items() if count > 1] == []


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("train.ema", "ema.kind"), ("model.width", "model.widths"), ("train.step", "train.steps"),
        ("trian.sede", "train.seed"),
        ("optimizer.learning_rate", "optimizer.lr"), ("train.zzz", None), ("", None),
    ],
)  # fmt: skip
def test_the_nearest_setting(key: str, near: str | None) -> None:
    assert nearest_setting(key, types_of_fields()) == (f". Did you mean {near!r}?" if near else ".")


@pytest.mark.parametrize("key", ["sample.eta", "sample.temperature", "train.gradient_accumulation_steps"])
def test_what_is_no_setting_here_is_answered_with_what_to_use(key: str) -> None:
    assert nearest_setting(key, types_of_fields()) == f". {INSTEAD_OF_FLAG[key.partition('.')[2]]}"
