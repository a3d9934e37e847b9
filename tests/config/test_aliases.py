"""The names of other trainers lead to settings that exist, each to one."""

from __future__ import annotations

from collections import Counter

import pytest

from safelight.config import aliases
from safelight.config.aliases import advice_on, setting_of, value_of
from safelight.config.presets import FLAGS
from safelight.config.resolve import convert, types_of_fields
from safelight.errors import UsageError
from safelight.library import settings_of


def every_name() -> list[str]:
    tables = [*aliases.NAMES.values(), *aliases.IN_EPOCHS.values()]
    return [n for t in tables for n in t] + [*aliases.SWITCHES, *aliases.ALREADY_DONE, *aliases.INSTEAD_OF_FLAG]


def test_every_setting_exists_and_no_name_stands_twice() -> None:
    targets = {*aliases.NAMES, *aliases.IN_EPOCHS, *aliases.VALUES, *(key for key, _ in aliases.SWITCHES.values())}
    assert targets - types_of_fields().keys() == {"run"}
    assert [name for name, count in Counter(every_name()).items() if count > 1] == []
    assert len(every_name()) > 100


def test_no_name_hides_one_of_ours() -> None:
    assert set(every_name()) & set(FLAGS) == {"precision"}


def test_every_value_is_one_that_the_setting_takes() -> None:
    known = types_of_fields()
    for key, words in aliases.VALUES.items():
        for word in words.values():
            convert(key, word, known[key])
    for key, word in aliases.SWITCHES.values():
        convert(key, word, known[key])


@pytest.mark.parametrize(
    ("name", "word", "key", "value"),
    [
        ("learning_rate", "1e-4", "optimizer.lr", "1e-4"),
        ("mixed_precision", "no", "train.precision", "fp32"),
        ("precision", "16-mixed", "train.precision", "fp16"),
        ("save_period", "5", "checkpoint.every", "5ep"),
        ("ddpm_beta_schedule", "squaredcos_cap_v2", "diffusion.schedule", "cosine"),
        ("stepz", "5", None, None),
    ],
)
def test_names_and_values(name: str, word: str, key: str | None, value: str | None) -> None:
    assert setting_of(name) == key
    if key is not None:
        assert value_of(name, key, word) == value


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("learning_rate", r"'learning_rate'\. It is 'lr' here"),
        ("max_grad_norm", r"It is the setting 'clipping\.limit' here"),
        ("gradient_accumulation_steps", "accumulated 4 times"),
        ("use_ema", "always kept"),
        ("prefetch_factor", "one step ahead"),
        ("stepps", r"Did you mean 'steps'"),
    ],
)
def test_python_names_the_right_argument(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        settings_of({name: 1})
    assert advice_on("stepps") is None
