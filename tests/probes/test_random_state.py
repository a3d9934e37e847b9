"""Draws of others leave no trace."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from safelight.probes.random_state import kept_random_state, random_states, restore_random_states


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


def test_states_go_through_json_and_come_back() -> None:
    random.gauss()  # leaves a second number behind
    np.random.normal()
    taken = json.loads(json.dumps(random_states()))
    first = [*draw(), random.gauss(), np.random.normal()]
    draw()
    assert restore_random_states(taken) == []
    assert [*draw(), random.gauss(), np.random.normal()] == first


def test_states_of_other_devices_are_told() -> None:
    taken = random_states()
    taken["cuda"] = [taken["torch"]] * (torch.cuda.device_count() + 1)
    [words] = restore_random_states(taken)
    assert words.startswith("random states of")


@pytest.mark.parametrize("wrong", [{}, {"torch": "no base64!"}, {"torch": "AAAA"}, {"python": [3, "", None]}])
def test_what_is_no_state_changes_nothing_or_fails(wrong: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, RuntimeError)):
        restore_random_states(random_states() | wrong if wrong else {})
