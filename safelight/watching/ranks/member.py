"""The watch of a process that is not the first: it tells the first one of its share, and is silent otherwise."""

from __future__ import annotations

import atexit
import functools
import os
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from safelight.monitors.gradients import GradientMonitor
from safelight.monitors.parameters import find_parts, norms_of
from safelight.monitors.reading_buffer import DEVICE_WINDOW, PendingReading
from safelight.monitors.shards import WHOLE, local_of
from safelight.monitors.suite import FULL_READ_INTERVAL
from safelight.monitors.updates import UpdateMonitor
from safelight.watching.foreign import bare_optimizer
from safelight.watching.hooks import OptimizerHooks
from safelight.watching.ranks.rank_channel import RankChannel
from safelight.watching.ranks.rank_monitor import RankMonitor, layout_entry, trained_by
from safelight.watching.silent_watch import NullWatch
from safelight.words import first_line

POST_SECONDS = 0.2  # between two posts where the numbers are on the host
MOST_KEPT = 4096  # entries, while nobody reads
ReadEma = Callable[[], list[Tensor] | None]


class RankWorker(NullWatch):
    """What it measures is decided by the number of the update and never by a clock; a fault ends it, and the loop goes
    on."""

    def __init__(
        self,
        line: RankChannel,
        optimizer: Any,
        *,
        read_ema: ReadEma = lambda: None,
        made_before: Callable[[], int] | None = None,
        is_told_of_steps: bool = True,
    ) -> None:
        """`made_before`: updates that the script has made, where not all of them were seen. `is_told_of_steps`: the
        loop calls `step` after its updates."""
        self._line, self._read_ema, self._made_before = line, read_ema, made_before
        self._waits, self._process, self._on = is_told_of_steps, os.getpid(), True
        self._calls, self.updates = -1, 0
        bare = bare_optimizer(optimizer)
        self._parameters = trained_by(bare)
        self._look = RankMonitor(self._parameters, line.size)
        self._is_sharded = any(piece != WHOLE for piece in self._look.pieces)
        parts = find_parts([(str(place), p) for place, p in enumerate(self._parameters)])
        self._gradients, self._moves = GradientMonitor(parts), UpdateMonitor(parts, self._parameters)
        self._entries: list[tuple[str, dict[str, Any]]] = [("", dict(layout_entry(self._look.pieces)))]
        self._current: dict[str, Any] | None = None  # the entry of the last update
        self._posted = time.monotonic()
        self._hooks = OptimizerHooks(
            self._parameters, optimizer, None, before_update=self._before_update, safely=self._safely
        )
        self._after = bare.register_step_post_hook(self._count_update)
        self._look.begin(0 if made_before is None else made_before())
        self._at_exit = functools.partial(_close_at_exit, weakref.ref(self))
        atexit.register(self._at_exit)
        self._safely(lambda: self._post(all_of_them=True))  # the first one knows that it is there

    def step(self, loss: Tensor | float | None = None, **passed: Tensor | None) -> Any:
        self._safely(lambda: self._complete(passed))
        return self.stats

    def close(self, **_: Any) -> None:
        if os.getpid() != self._process:
            return
        self._safely(lambda: self._post(all_of_them=True))
        self._stop()
        self._hooks.close()
        self._after.remove()
        atexit.unregister(self._at_exit)

    def _stop(self) -> None:
        """The hooks of the optimizer stay until the end and do nothing: torch may be going through them just now."""
        self._on, self._current = False, None
        self._look.close()
        self._entries.clear()

    def __enter__(self) -> RankWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _safely(self, act: Callable[[], None]) -> None:
        if not self._on or os.getpid() != self._process:
            return
        try:
            act()
        except Exception as error:  # the first process is told, once; the loop goes on
            words = f"{type(error).__name__}: {first_line(error)}".encode()
            with suppress(Exception):  # the store may have gone
                self._line.post({"failed": np.frombuffer(words, np.uint8)})
            self._stop()

    # --- an update ------------------------------------------------------------------------------------------------

    def _before_update(self, gradients: Callable[[], list[Tensor]]) -> None:
        self._current = None
        self._post()
        self._calls = self._calls + 1 if self._made_before is None else self._made_before()
        entry: dict[str, Any] = dict(self._look.take(self._calls))
        if self._is_sharded:
            assert self._hooks.norms is not None
            entry["norms"] = self._hooks.norms[None]
            if self._measures_parts:
                entry["zeros"] = torch.stack(self._gradients.measure_zeros(gradients()).tensors)
                self._moves.before()
        self._hooks.clear()
        self._current = entry if entry else None

    @property
    def _measures_parts(self) -> bool:
        return self._is_sharded and self._calls % FULL_READ_INTERVAL == 0

    def _count_update(self, *_: object) -> None:
        self.updates += 1  # a loop may ask each process for it, also after a fault of ours
        self._safely(self._just_updated)

    def _just_updated(self) -> None:
        if self._current is not None:
            if self._measures_parts:
                self._current["moves"] = _rows(self._moves.after(None))
            self._entries.append((f"{self._calls}/", self._current))
            del self._entries[1:-MOST_KEPT]
        self._look.begin(self._calls + 1)
        if not self._waits:
            self._current = None
            self._post()

    @torch.no_grad()
    def _complete(self, passed: dict[str, Tensor | None]) -> None:
        """What the loop passes after an update belongs to it."""
        entry, self._current = self._current, None
        if entry is not None:
            if "weights" in entry:
                entry |= self._look.describe(passed.get("x0"), passed.get("noise"))
            if self._measures_parts and (ema := self._read_ema()) is not None:
                weights = [local_of(p.detach()) for p in self._parameters]
                entry["apart"] = norms_of(torch._foreach_sub(weights, list(ema)))[None]
        self._post()

    def _post(self, *, all_of_them: bool = False) -> None:
        """Without those of an update that more is told of."""
        count = len(self._entries) - (self._current is not None and not all_of_them and self._has_current)
        device = self._parameters[0].device
        is_due = count % DEVICE_WINDOW == 0 or not self._is_sharded or all_of_them
        is_due |= device.type == "cpu" and time.monotonic() - self._posted > POST_SECONDS
        if not count or not is_due:
            return
        self._posted = time.monotonic()
        if self._line.has_room():
            told = {f"{start}{name}": each for start, entry in self._entries[:count] for name, each in entry.items()}
            self._line.post(_on_host(told))
            del self._entries[:count]

    @property
    def _has_current(self) -> bool:
        return bool(self._entries) and self._entries[-1][1] is self._current


def _rows(reading: PendingReading) -> Tensor:
    return torch.stack(reading.tensors)


def _on_host(entry: dict[str, Any]) -> dict[str, np.ndarray]:
    """With one copy from the device."""
    tensors = {name: each.float() for name, each in entry.items() if isinstance(each, Tensor)}
    found = {name: np.ascontiguousarray(each) for name, each in entry.items() if name not in tensors}
    if tensors:
        flat = torch.cat([each.reshape(-1) for each in tensors.values()]).cpu().numpy()
        cuts = np.cumsum([each.numel() for each in tensors.values()])[:-1]
        for (name, each), part in zip(tensors.items(), np.split(flat, cuts), strict=True):
            found[name] = np.ascontiguousarray(part.reshape(each.shape))
    return found


def _close_at_exit(member: weakref.ref[RankWorker]) -> None:
    if (left := member()) is not None:
        left.close()
