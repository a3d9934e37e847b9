"""The watch of a process that is not the first, with a store of its own."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from joint_loops import Small
from torch import nn
from torch.distributed import HashStore

from safelight.watching.ranks.member import RankWorker
from safelight.watching.ranks.rank_channel import RankChannel, RankInfo
from safelight.watching.silent_watch import NullWatch


def pair(
    *, sharded: bool, monkeypatch: pytest.MonkeyPatch, **how: Any
) -> tuple[RankChannel, RankWorker, nn.Module, Any]:
    if sharded:
        monkeypatch.setattr("safelight.watching.ranks.rank_monitor.pieces_of", lambda given: ["half"] * len(given))
    store, model = HashStore(), Small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    first, line = (RankChannel(RankInfo(store, rank, 2), "it") for rank in (0, 1))
    return first, RankWorker(line, optimizer, **how), model, optimizer


def steps(model: nn.Module, optimizer: Any, member: RankWorker | None, count: int = 3) -> None:
    for _ in range(count):
        loss = model(torch.ones(2, 12), torch.zeros(2, dtype=torch.long)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if member is not None:
            member.step(loss, x0=torch.ones(2, 12))


@pytest.mark.parametrize("sharded", [True, False])
def test_it_tells_of_every_update_where_it_holds_a_piece(sharded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    first, member, model, optimizer = pair(sharded=sharded, monkeypatch=monkeypatch)
    steps(model, optimizer, member, 10)
    member.close()
    told = {name for _, entry in first.fetch() for name in entry}
    assert "layout" in told
    assert {"0/weights", "7/passed/rows"} <= told
    assert not any(name.startswith(("8/weights", "9/passed")) for name in told)
    assert ("9/norms" in told) == ("0/moves" in told) == ("0/zeros" in told) == sharded
    assert "1/zeros" not in told
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    assert isinstance(member, NullWatch)


def test_without_steps_of_the_watch_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    first, _, model, optimizer = pair(sharded=False, monkeypatch=monkeypatch, is_told_of_steps=False)
    steps(model, optimizer, None, 1)
    assert {name for _, entry in first.fetch() for name in entry} >= {"layout", "0/weights"}


def test_what_is_not_completed_is_posted_with_the_next_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that calls `step` on the first process only."""
    first, _, model, optimizer = pair(sharded=False, monkeypatch=monkeypatch)
    steps(model, optimizer, None, 2)
    told = {name for _, entry in first.fetch() for name in entry}
    assert "0/weights" in told
    assert "1/weights" not in told


def test_where_nobody_reads_the_numbers_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    _, member, model, optimizer = pair(sharded=True, monkeypatch=monkeypatch)
    monkeypatch.setattr("safelight.watching.ranks.member.MOST_KEPT", 20)
    monkeypatch.setattr(member._line, "has_room", lambda: False)
    monkeypatch.setattr("safelight.watching.ranks.member._on_host", None)
    steps(model, optimizer, member, 70)
    assert member._on
    assert len(member._entries) <= 22


def test_a_fault_is_told_once_and_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first, member, model, optimizer = pair(sharded=False, monkeypatch=monkeypatch)

    def fail(*_: object) -> Any:
        raise ArithmeticError("of ours")

    monkeypatch.setattr(member._look, "take", fail)
    others = [optimizer.register_step_pre_hook(lambda *_: None), optimizer.register_step_post_hook(lambda *_: None)]
    steps(model, optimizer, member)  # torch goes through all hooks of the step in which it fails
    told = [entry for _, entry in first.fetch()]
    assert told[-1]["failed"].tobytes() == b"ArithmeticError: of ours"
    assert [list(entry) for entry in told] == [["layout"], ["failed"]]
    member.close()
    assert [each.id for each in others] == [*optimizer._optimizer_step_pre_hooks, *optimizer._optimizer_step_post_hooks]


def test_it_keeps_no_model_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    _, member, model, optimizer = pair(sharded=True, monkeypatch=monkeypatch)
    steps(model, optimizer, member)
    alive = weakref.ref(model)
    del member, model, optimizer
    gc.collect()
    assert alive() is None
