"""Posts through a store: read once and in order, and never waited for."""

from __future__ import annotations

import numpy as np
import pytest
from torch.distributed import HashStore

from safelight.watching.ranks.rank_channel import MOST_UNREAD, RankChannel, RankInfo, next_name, place_here


def lines(size: int = 3) -> list[RankChannel]:
    store = HashStore()
    return [RankChannel(RankInfo(store, rank, size), "it") for rank in range(size)]


def test_what_is_posted_is_read_once_and_in_order() -> None:
    first, second, third = lines()
    assert first.fetch() == []
    for number in range(3):
        second.post({"0/norms": np.full((1, 2), number, np.float32)})
    third.post({"layout": np.frombuffer(b"whole", np.uint8)})
    found = first.fetch()
    assert [rank for rank, _ in found] == [1, 1, 1, 2]
    assert [float(entry["0/norms"][0, 0]) for _, entry in found[:3]] == [0, 1, 2]
    assert found[3][1]["layout"].tobytes() == b"whole"
    assert first.fetch() == []


def test_a_process_that_nobody_reads_has_no_room() -> None:
    first, second, _ = lines()
    for _ in range(MOST_UNREAD):
        assert second.has_room()
        second.post({"a": np.zeros(1)})
    assert not second.has_room()
    first.fetch()
    assert second.has_room()


def test_watches_have_lines_of_their_own() -> None:
    store = HashStore()
    first, other = (RankChannel(RankInfo(store, rank, 2), name) for rank, name in ((0, "one"), (1, "two")))
    other.post({"a": np.zeros(1)})
    assert first.fetch() == []
    assert next_name() != next_name()


def test_alone_there_is_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert place_here() is None
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    assert place_here() is None, "nobody was met"
