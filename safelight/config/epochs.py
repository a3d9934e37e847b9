"""Lengths and intervals in epochs, turned into steps as soon as the number of images is known."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from safelight.config.tree import Config, Epochs

INTERVALS = ("checkpoint", "sample", "evaluate")  # sections whose `every` may be in epochs
MAX_EPOCHS = 1e9
WRITTEN = re.compile(r"(\d+(?:\.\d+)?) ?(?:ep|epochs?)")


def number_of(word: str) -> float:
    """`5ep`, `5 epochs` -> 5.0; ValueError for anything else."""
    found = WRITTEN.fullmatch(word.strip())
    if found is None or not 0 < float(found[1]) < MAX_EPOCHS:
        raise ValueError(word)
    return float(found[1])


def has_epochs(config: Config) -> bool:
    """Whether something is still counted in epochs."""
    intervals = (getattr(config, section).every for section in INTERVALS)
    return config.train.epochs is not None or any(isinstance(every, str) for every in intervals)


def in_steps(config: Config, images: int) -> Config:
    """The same config with nothing but steps, for so many training images in one epoch."""
    per_epoch = images / config.train.batch_size
    if config.train.epochs is not None:
        steps = max(1, math.ceil(config.train.epochs * per_epoch - 1e-9))
        config = replace(config, train=replace(config.train, steps=steps, epochs=None))
    for name in INTERVALS:
        section = getattr(config, name)
        if isinstance(section.every, str):
            every = max(1, round(number_of(section.every) * per_epoch))
            config = replace(config, **{name: replace(section, every=every)})
    return config


def every_in_steps(every: int | Epochs | None) -> int | None:
    """An interval of a config whose epochs were turned into steps."""
    assert not isinstance(every, str), f"{every} was not turned into steps"
    return every


def in_words(config: Config, images: int) -> list[str]:
    """What `in_steps` makes of it, for the reader: `3 epochs of 1,700 images in batches of 128: 40 steps.`"""
    after, size = in_steps(config, images), config.train.batch_size
    length = []
    if config.train.epochs is not None:
        epochs = f"{config.train.epochs:g} epoch{'s' * (config.train.epochs != 1)}"
        length = [f"{epochs} of {images:,} images in batches of {size:,}: {after.train.steps:,} steps."]
    intervals = [
        f"{name}.every {getattr(config, name).every}: {getattr(after, name).every:,} steps."
        for name in INTERVALS
        if isinstance(getattr(config, name).every, str)
    ]
    return length + intervals
