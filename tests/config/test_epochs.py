"""Epochs become steps, and words that are none are refused."""

from __future__ import annotations

from typing import Any

import pytest

from safelight.config.epochs import every_in_steps, has_epochs, in_steps, in_words, number_of
from safelight.config.resolve import resolve
from safelight.errors import UsageError


@pytest.mark.parametrize(
    ("word", "number"),
    [("5ep", 5.0), ("5 ep", 5.0), ("1epoch", 1.0), ("2 epochs", 2.0), ("0.5ep", 0.5), (" 3ep ", 3.0)],
)
def test_epochs_in_words(word: str, number: float) -> None:
    assert number_of(word) == number


@pytest.mark.parametrize("word", ["5", "5e", "ep", "0ep", "-1ep", "5 eps", "1e3ep", "9" * 400 + "ep"])
def test_other_words_are_no_epochs(word: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        number_of(word)


@pytest.mark.parametrize(
    ("settings", "images", "expected"),
    [
        ({"train.epochs": 3, "train.batch_size": 10}, 100, {"train.steps": 30}),
        ({"train.epochs": 3, "train.batch_size": 64}, 100, {"train.steps": 5}),  # a last batch that is not full counts
        ({"train.epochs": 0.1, "train.batch_size": 64}, 10, {"train.steps": 1}),
        ({"checkpoint.every": "5ep", "train.batch_size": 10}, 100, {"checkpoint.every": 50}),
        ({"sample.every": "1 epoch", "train.batch_size": 64}, 100, {"sample.every": 2}),
        ({"evaluate.every": "0.01ep", "train.batch_size": 64}, 100, {"evaluate.every": 1}),
        ({"evaluate.every": "0", "train.steps": 7}, 100, {"evaluate.every": 0, "train.steps": 7}),
    ],
)
def test_steps(settings: dict[str, Any], images: int, expected: dict[str, int]) -> None:
    config = resolve(settings=settings)
    after = in_steps(config, images)
    assert not has_epochs(after)
    for key, value in expected.items():
        section, _, name = key.partition(".")
        assert getattr(getattr(after, section), name) == value
    assert (after == config) == (not has_epochs(config))


def test_it_is_said() -> None:
    config = resolve(settings={"train.epochs": 3, "train.batch_size": 128, "checkpoint.every": "5ep"})
    assert in_words(config, 1700) == [
        "3 epochs of 1,700 images in batches of 128: 40 steps.",
        "checkpoint.every 5ep: 66 steps.",
    ]
    assert in_words(resolve(), 1700) == []


def test_an_interval_that_was_not_turned_into_steps_is_noticed() -> None:
    assert (every_in_steps(5), every_in_steps(None)) == (5, None)
    with pytest.raises(AssertionError, match="5ep"):
        every_in_steps(resolve(settings={"sample.every": "5ep"}).sample.every)


def test_a_later_layer_decides_the_length() -> None:
    by_epochs = resolve(preset="digits", settings={"train.epochs": "3"})
    assert (by_epochs.train.epochs, by_epochs.train.steps) == (3.0, 1000)
    assert resolve(base=by_epochs, settings={"train.steps": 5}).train.epochs is None
    assert resolve(settings={"train.steps": 5, "train.epochs": None}).train.steps == 5
    with pytest.raises(UsageError, match=r"two lengths of one run\. Leave one"):
        resolve(settings={"train.steps": 5, "train.epochs": 3})


@pytest.mark.parametrize("word", ["5 e", "five epochs", "0ep"])
def test_what_is_no_interval_is_refused_in_words(word: str) -> None:
    with pytest.raises(UsageError, match=r"must be a whole number or epochs such as 5ep or none"):
        resolve(settings={"checkpoint.every": word})
