"""The tree: frozen, and every number in it with a range."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest

from safelight.config import Config
from safelight.config.check import keys_in_range
from safelight.config.resolve import (
    flatten,
    to_dict,
)

POSITIVE, NOT_NEGATIVE, SHARES = map(keys_in_range, ("positive", "not negative", "share"))


def test_the_tree_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().train.steps = 5  # type: ignore[misc]


def test_every_number_of_the_tree_is_checked() -> None:
    """A new setting that is a number needs a range in the tree, or a reason here."""
    numbers = {k for k, v in flatten(to_dict(Config())).items() if type(v) in (int, float)}
    elsewhere = {"train.accumulate", "ema.width"}
    assert numbers - {*POSITIVE, *NOT_NEGATIVE, *SHARES} == elsewhere
    assert {f.name for f in fields(Config)} >= {key.partition(".")[0] for key in [*POSITIVE, *NOT_NEGATIVE, *SHARES]}
