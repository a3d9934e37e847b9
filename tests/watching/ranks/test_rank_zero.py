"""The first process, told by one that is played here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from joint_loops import Small
from torch.distributed import HashStore

from safelight.monitors.reading_buffer import PendingReading, ShardReduction
from safelight.watching.ranks.rank_channel import RankChannel, RankInfo
from safelight.watching.ranks.rank_monitor import layout_entry
from safelight.watching.ranks.rank_zero import RankZero


class Pair:
    """A first process with pieces, and the line of the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, own: str, other: str) -> None:
        self.model = Small()
        self.named = list(self.model.named_parameters())
        monkeypatch.setattr("safelight.watching.ranks.rank_monitor.pieces_of", lambda given: [own] * len(given))
        monkeypatch.setattr("safelight.watching.ranks.rank_zero.FETCH_SECONDS", 0.0)
        monkeypatch.setattr("safelight.watching.ranks.rank_zero.LAST_WAIT", 0.05)
        store, self.said = HashStore(), list[str]()
        optimizer = torch.optim.SGD(reversed(list(self.model.parameters())), 0.1)  # in another order than the model's
        lines = [RankChannel(RankInfo(store, rank, 2), "it") for rank in (0, 1)]
        self.first, self.other = RankZero(lines[0], optimizer, self.named, self.said.append), lines[1]
        self.other.post(layout_entry([other] * len(self.named)))

    def update(self, step: int) -> int | None:
        self.first.before_update(step)
        return self.first.take_call()

    def tell(self, call: int, **rows: np.ndarray) -> None:
        look = {"weights": np.zeros(1, np.int64), "gradients": np.zeros(1, np.int64), "random": np.zeros(2, np.int64)}
        self.other.post({f"{call}/{name}": each for name, each in (look | rows).items()})

    def read(self, call: int | None, own: np.ndarray, share: ShardReduction) -> Any:
        found: list[Any] = []
        piece = PendingReading((torch.zeros(1),), lambda *arrays: found.extend(arrays) or {"a": 1.0}, share)
        [joined] = self.first.joined([piece], call)
        readings = joined.finish(*own, np.array([5.0, 7.0]))
        return found if readings else None


def numbers(count: int) -> np.ndarray:
    return np.arange(1.0, count + 1)[None].astype(np.float32)


@pytest.mark.parametrize(("other", "counted"), [("other half", 1), ("half", 0)])
def test_pieces_are_joined_in_the_order_of_the_model_and_counted_once(
    monkeypatch: pytest.MonkeyPatch, other: str, counted: int
) -> None:
    pair = Pair(monkeypatch, "half", other)
    call, count = pair.update(3), len(pair.named)
    pair.tell(0, norms=numbers(count), zeros=numbers(count))
    assert pair.first.ready([call]) == 1
    own, theirs = numbers(count), numbers(count)[:, ::-1] * counted
    whole, rest = pair.read(call, own, ShardReduction("norms", 1))
    assert whole == pytest.approx(np.sqrt(own**2 + theirs**2)[0])
    assert rest == pytest.approx([np.linalg.norm(whole), 7.0]), "the norm of all is that of whole parameters"
    assert pair.first.norms(call) is not None
    zeros, _ = pair.read(call, own, ShardReduction("zeros", 1, of_norms=False))
    assert zeros == pytest.approx((own + theirs)[0])


def test_readings_wait_for_the_others_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(monkeypatch, "half", "other half")
    calls = [pair.update(step) for step in range(3)]
    assert pair.first.ready(calls) == 0
    pair.tell(0, norms=numbers(len(pair.named)))
    assert pair.first.ready(calls) == 1
    assert pair.first.ready(calls[1:]) == 0
    assert pair.said == []
    monkeypatch.setattr("safelight.watching.ranks.rank_zero.PATIENCE", 0.0)
    assert pair.first.ready(calls[1:]) == 2
    [words] = pair.said
    assert "did not tell of its share" in words
    assert pair.read(calls[1], numbers(len(pair.named)), ShardReduction("norms", 1)) is None
    assert pair.first.ready([pair.update(9)]) == 1, "nothing is held any more"
    assert len(pair.said) == 1


def test_at_the_end_what_comes_is_awaited_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(monkeypatch, "half", "other half")
    call = pair.update(0)
    assert pair.first.ready([call], at_last=True) == 1
    pair.tell(0, norms=numbers(len(pair.named)))
    assert pair.first.ready([call], at_last=True) == 1
    assert pair.read(call, numbers(len(pair.named)), ShardReduction("norms", 1)) is not None


def test_looks_are_compared_at_their_own_step(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(monkeypatch, "whole", "whole")
    call = pair.update(40)
    assert pair.first.ready([call]) == 1, "nothing is joined"
    assert pair.first.compared() == []
    pair.tell(0)
    pair.first.ready([])
    assert [step for step, _ in pair.first.compared()] == [40]
    assert pair.first.compared() == []


def test_a_store_that_has_gone_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(monkeypatch, "half", "other half")

    def gone(*_: object) -> Any:
        raise RuntimeError("connection reset")

    monkeypatch.setattr(pair.first._line, "fetch", gone)
    assert pair.first.ready([pair.update(0)]) == 1
    assert pair.first.ready([pair.update(1)], at_last=True) == 1
    assert pair.said == ["The other processes cannot be heard any more (RuntimeError: connection reset)."]


def test_calls_of_a_closure_before_the_last_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(monkeypatch, "whole", "whole")
    for _ in range(3):
        pair.first.before_update(5)
    pair.tell(2)
    pair.first.ready([pair.first.take_call()])
    assert [step for step, _ in pair.first.compared()] == [5]
    assert not pair.first._looks


def test_other_parameters_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those of another stage of a pipeline."""
    pair = Pair(monkeypatch, "half", "other half")
    pair.other.post(layout_entry(["half"]))
    call = pair.update(0)
    pair.tell(0, norms=numbers(1))
    assert pair.first.ready([call]) == 1
    assert pair.read(call, numbers(len(pair.named)), ShardReduction("norms", 1)) is None
    assert "other parameters" in pair.said[0]
