"""How often each optimizer of a script has made a step: the same number on all processes."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from safelight.capturing.patches import weakly
from safelight.monitors.step_hooks import silence

OnCall = Callable[[torch.optim.Optimizer], None]


class OptimizerStepCounts:
    """From the beginning of a script on, in the thread that trains."""

    def __init__(self, on_first: OnCall = lambda _: None) -> None:
        """`on_first`: before the first step of an optimizer."""
        self._counts = weakref.WeakKeyDictionary[torch.optim.Optimizer, int]()
        self._names = weakref.WeakKeyDictionary[torch.optim.Optimizer, str]()
        self._on_first = on_first
        self._handles: list[RemovableHandle] = [register_optimizer_step_pre_hook(weakly(self._before_step))]
        self._process = os.getpid()

    def made_before(self, optimizer: torch.optim.Optimizer) -> int:
        """Steps that were made before the one that is being made, or is next."""
        return max(0, self._counts.get(optimizer, 0) - 1)

    def name_of(self, optimizer: torch.optim.Optimizer) -> str:
        """The same on all processes: by what it trains, and its place among those that train the same."""
        if optimizer not in self._names:
            kind = _layout(optimizer)
            place = sum(other.startswith(kind) for other in self._names.values())
            self._names[optimizer] = f"{kind}-{place}"
        return self._names[optimizer]

    def close(self) -> None:
        silence(self._handles)

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        if os.getpid() != self._process:
            return
        self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        if self._counts[optimizer] == 1:
            self.name_of(optimizer)
            self._on_first(optimizer)


def _layout(optimizer: torch.optim.Optimizer) -> str:
    """FSDP1 has pieces of other shapes on each process: their number has to do."""
    words = [type(optimizer).__name__, *(str(len(group["params"])) for group in optimizer.param_groups)]
    return "script-" + hashlib.sha256(" ".join(words).encode()).hexdigest()[:12]
