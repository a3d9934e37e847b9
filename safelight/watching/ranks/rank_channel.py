"""The line between the processes of a loop: what one posts, the first one reads when it is there. Nobody ever waits."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load, save

MOST_UNREAD = 64  # posts; then a process keeps what is new to itself

Entry = Mapping[str, np.ndarray]
_numbers = itertools.count()  # of the watches of this process, opened in the same order on all


@dataclass(frozen=True, slots=True)
class RankInfo:
    """Where this process stands among those that train together."""

    store: Any
    rank: int
    size: int


def place_here() -> RankInfo | None:
    """None where a process is alone, or has met nobody yet.

    By the store in which the processes met and not by collectives: a process whose watch has failed or was never
    opened, and one that skips an update, would keep the others waiting for ever."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return None
    from torch.distributed.distributed_c10d import _get_default_store  # torch has no public name for it

    try:
        return RankInfo(_get_default_store(), distributed.get_rank(), distributed.get_world_size())
    except Exception:  # a backend that meets elsewhere, such as MPI
        return None


def next_name() -> str:
    return f"watch-{next(_numbers)}"


class RankChannel:
    """One per watch and process."""

    def __init__(self, place: RankInfo, name: str) -> None:
        self.rank, self.size = place.rank, place.size
        self._store, self._name = place.store, f"safelight/{name}"
        self._posted = 0
        self._read = [0] * place.size

    # --- the first process ----------------------------------------------------------------------------------------

    def fetch(self) -> list[tuple[int, Entry]]:
        """What is new, by rank; of each in the order it was posted."""
        found = []
        for rank in range(1, self.size):
            while self._store.check([key := self._key(rank, self._read[rank])]):
                found.append((rank, load(self._store.get(key))))
                self._store.delete_key(key)
                self._read[rank] += 1
        return found

    # --- the others -----------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Not where nobody reads, or not fast enough."""
        unread = self._key(self.rank, self._posted - MOST_UNREAD)
        return self._posted < MOST_UNREAD or not self._store.check([unread])

    def post(self, entry: Entry) -> None:
        self._store.set(self._key(self.rank, self._posted), save(dict(entry)))
        self._posted += 1

    def _key(self, rank: int, number: int) -> str:
        return f"{self._name}/{rank}/{number}"
