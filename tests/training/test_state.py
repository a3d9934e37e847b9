"""A snapshot and its restore are inverses, and one that does not fit is refused before anything is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny import parts_of

from safelight.checkpoints.snapshot import Loaded
from safelight.errors import CheckpointError
from safelight.training.build import Setup


def trained(steps: int, **settings: object) -> Setup:
    setup = parts_of(**settings)
    for step in range(steps):
        setup.stepper.step(setup.loader.load(step), step)
        setup.state.counters.step += 1
    return setup


def saved(setup: Setup) -> Loaded:
    snapshot = setup.state.snapshot()
    return Loaded(snapshot.step, Path("memory"), snapshot.tensors, dict(snapshot.state), {})


def equal(ours: Loaded, theirs: Loaded) -> bool:
    pairs = [
        (tensors[name], theirs.tensors[group][name]) for group, tensors in ours.tensors.items() for name in tensors
    ]
    return ours.state == theirs.state and all(torch.equal(a, b) for a, b in pairs)


def test_a_restored_state_is_the_one_that_was_saved() -> None:
    setup, other = trained(3), trained(5)
    setup.state.journal.write("redo", step=1, since=1, reason="a test", facts={})
    setup.state.watch.add_loss(0.5, 1.0)
    before = saved(setup)
    assert not equal(before, saved(other))
    other.state.restore(before)
    assert equal(before, saved(other))
    assert other.state.counters.step == 3


@pytest.mark.parametrize(("group", "lost"), [("model", 0), ("ema", 0), ("optimizer", 0), ("profiles", 0)])
def test_half_a_checkpoint_is_refused_and_nothing_is_touched(group: str, lost: int) -> None:
    setup, other = trained(2), trained(1)
    loaded, before = saved(setup), saved(other)
    del loaded.tensors[group][sorted(loaded.tensors[group])[lost]]
    with pytest.raises(CheckpointError):
        other.state.restore(loaded)
    assert equal(before, saved(other))
