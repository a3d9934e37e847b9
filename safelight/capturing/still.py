"""Copies of the network that are named as an EMA and do not move: made, and never updated."""

from __future__ import annotations

import gc
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

OURS = str(Path(__file__).parents[1])
NAMED_AS_EMA = re.compile(r"(?<![a-z])ema|(?<!sch)ema(?![a-z])|shadow|averag|polyak")
MOST_NAMES, HOPS = 10_000, 4  # entries of a mapping that is looked through; from a copy to the object that holds it


@dataclass(slots=True)
class _Copy:
    held: Any
    first: list[Tensor]
    since: int


class StillCopies:
    """A module is held weakly. Anything else is held by its first numbers alone, and looked for again."""

    def __init__(self, sample: Callable[[Any], list[Tensor] | None]) -> None:
        self._sample = sample
        self._copies: list[_Copy] = []
        self.longest = 0
        """Updates for which the one that stands longest did not move; 0 where there is none."""

    def add(self, values: Iterable[Any], updates: int) -> list[nn.Module]:
        """Those that are new and named as an EMA; returns the modules among them."""
        known = [each.held() for each in self._copies]
        new = [value for value in values if isinstance(value, nn.Module) and not any(value is each for each in known)]
        found = [value for value in new if any(NAMED_AS_EMA.search(name.lower()) for name in names_of(value))]
        for value in found:
            if (sampled := self._sample(value)) is not None:
                self._copies.append(_Copy(weakref.ref(value), [each.clone() for each in sampled], updates))
        return found

    def look(self, updates: int) -> None:
        self._copies = [each for each in self._copies if self._is_still(each)]
        self.longest = max((updates - each.since for each in self._copies), default=0)

    def drop(self) -> None:
        self._copies = []

    def _is_still(self, copy: _Copy) -> bool:
        value = copy.held()
        now = None if value is None else self._sample(value)
        return now is not None and len(now) == len(copy.first) and all(map(torch.equal, now, copy.first))


def names_of(value: Any) -> set[str]:
    """What the script calls an object: variables, attributes, keys, and the classes of what holds it."""
    found = {name for frame in _frames() for name, each in list(frame.f_locals.items()) if each is value}
    ahead: Sequence[Any] = [value]
    for _ in range(HOPS):
        holders = [each for each in gc.get_referrers(*ahead) if _is_theirs(each, ahead)]
        for holder in holders:
            found |= _names_in(holder, ahead)
        ahead = [each for each in holders if type(each) is dict and "__name__" not in each]
        if not ahead:
            break
    return found


def _frames() -> Iterable[FrameType]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if not frame.f_code.co_filename.startswith(OURS):
            yield frame
        frame = frame.f_back


def _is_theirs(holder: Any, ahead: Sequence[Any]) -> bool:
    kind = type(holder)
    return (
        kind not in (list, tuple, FrameType, ModuleType)
        and not getattr(kind, "__module__", "").startswith("safelight")
        and holder is not ahead
    )


def _names_in(holder: Any, ahead: Sequence[Any]) -> set[str]:
    names = set[str]()
    entries = holder if type(holder) is dict else None
    if entries is None:
        names.add(type(holder).__name__)
        with suppress(Exception):
            entries = object.__getattribute__(holder, "__dict__")
    if type(entries) is dict and len(entries) <= MOST_NAMES:
        names |= {name for name, each in list(entries.items()) if type(name) is str and any(each is a for a in ahead)}
    return names
