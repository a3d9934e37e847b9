"""The inputs of a step: a function of the step alone, whoever prepares them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny import parts_of

from safelight.diffusion.micro_batch import MicroBatch
from safelight.training.batch_loader import BatchLoader


def same(ours: list[MicroBatch], theirs: list[MicroBatch]) -> bool:
    pairs = list(zip(ours, theirs, strict=True))
    names = ("x0", "noise", "t")
    return all(torch.equal(getattr(a, name), getattr(b, name)) for a, b in pairs for name in names)


@pytest.mark.parametrize("workers", [0, 3])
def test_threads_ahead_and_any_order_give_the_same_batches(workers: int) -> None:
    setup = parts_of(data__workers=workers)
    expected = {step: setup.loader.prepare(step) for step in range(6)}
    assert all(same(setup.loader.load(step), expected[step]) for step in (0, 1, 2, 5, 1))
    assert not same(expected[0], expected[1])
    setup.loader.close()


def test_what_was_prepared_ahead_for_other_settings_is_not_used() -> None:
    setup = parts_of(data__workers=2)
    settings = setup.loader._default
    first = {int(i) for micro in setup.loader.load(0, settings) for i in micro.ids}
    spared = replace(settings, quarantined=frozenset(first), micro_batches=4)
    micros = setup.loader.load(1, spared)
    assert len(micros) == 4
    assert not first & {int(i) for micro in setup.loader.load(0, spared) for i in micro.ids}
    setup.loader.close()


@pytest.mark.parametrize(
    ("rank", "processes", "accumulate", "spans"),
    [(0, 1, 1, [(0, 8)]), (0, 1, 2, [(0, 4), (4, 8)]), (1, 2, 1, [(4, 8)]), (1, 2, 2, [(4, 6), (6, 8)])],
)
def test_processes_and_micro_batches_share_the_batch(
    rank: int, processes: int, accumulate: int, spans: list[tuple[int, int]]
) -> None:
    setup = parts_of(train__accumulate=accumulate)
    assert BatchLoader(setup.config, setup.batches, rank=rank, processes=processes).spans() == spans
