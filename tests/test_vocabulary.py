"""The catalogue of signals: every recorded name finds its entry, and no other does."""

from __future__ import annotations

import re

import pytest

from safelight.vocabulary import CHECK, GRADIENT_NOISE, GRADIENT_PART, LOSS, SIGNALS, Signal, signal_of


def test_names_are_unique_and_meanings_are_sentences() -> None:
    assert len({signal.name for signal in SIGNALS}) == len(SIGNALS)
    for signal in SIGNALS:
        assert re.fullmatch(r"[a-z]+(/[a-z_]+)?", signal.name)
        assert re.fullmatch(r"[A-Z0-9].*\.", signal.meaning), signal


@pytest.mark.parametrize(
    ("name", "signal"),
    [
        ("loss/mean", LOSS),
        ("loss/mean/first", None),  # not a family
        ("loss/means", None),
        ("gradient/part", GRADIENT_PART),
        ("gradient/part/down_blocks.0", GRADIENT_PART),
        ("gradient/partial", None),
        ("check/loss/error", CHECK),
        ("mine/accuracy", None),
    ],
)
def test_the_entry_of_a_recorded_name(name: str, signal: Signal | None) -> None:
    assert signal_of(name) is signal


def test_a_unit_is_that_of_a_plain_number_unless_it_is_given() -> None:
    assert (LOSS.unit, GRADIENT_NOISE.unit) == ("1", "images")
