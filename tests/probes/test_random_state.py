"""Draws of others leave no trace."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from safelight.probes.random_state import kept_random_state


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


def test_all_three_generators_are_restored() -> None:
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(3)
    first = draw()
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(3)
    with kept_random_state():
        inside = draw()
    assert inside == first == draw()


def test_also_after_an_error() -> None:
    def fail() -> None:
        draw()
        raise ArithmeticError

    state = states()
    with pytest.raises(ArithmeticError), kept_random_state():
        fail()
    assert states() == state


def states() -> list[str]:
    return [repr(random.getstate()), repr(np.random.get_state()), str(torch.get_rng_state().tolist())]
