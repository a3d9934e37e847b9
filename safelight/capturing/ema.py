"""The EMA of a network, whoever holds it: whatever has its shapes and moves towards its weights after an update."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from safelight import checks
from safelight.capturing.living import averages_like
from safelight.capturing.patches import weakly
from safelight.capturing.still import StillCopies
from safelight.monitors.hook_table import hook_before_call, is_traced
from safelight.monitors.shards import local_of
from safelight.vocabulary import CHECK

MAX_COMPARED_PARAMETERS, MAX_COMPARED_NUMBERS = 4, 1_000_000  # parameters that are compared, and numbers in one
MIN_CANDIDATES, MAX_CANDIDATES = 8, 64  # objects that may be the EMA: as many as hold MAX_SAMPLED_NUMBERS
MAX_SAMPLED_NUMBERS = 4_000_000
MAX_UNEXPLAINED_MOVE = 0.05  # of a move: what is left over of it
MAX_DECAY_ERROR = 0.1  # of 1 - decay: its error
MANY_CALLS = 4  # without gradients, between two updates: a sampler's; a teacher is called once or twice
TOLD_EVERY = 8  # updates between two readings of copies that stand still


@dataclass(slots=True)
class Candidate:
    """A module is held weakly; a list or a mapping cannot be, and is let go where nobody else holds it."""

    held: Any
    before: list[Tensor]

    @property
    def value(self) -> Any:
        return self.held() if isinstance(self.held, weakref.ref) else self.held


class EmaSearch:
    """Copies a few parameters of each candidate after an update, and compares them before the next one."""

    def __init__(self, network: nn.Module) -> None:
        self._everything = list(network.named_parameters())
        self._network = network
        trained = [
            (p.numel(), name) for name, p in self._everything if p.requires_grad and p.numel() <= MAX_COMPARED_NUMBERS
        ]
        self._names = [name for _, name in sorted(trained, reverse=True)[:MAX_COMPARED_PARAMETERS]]
        numbers = sum(p.numel() for name, p in self._everything if name in self._names)
        self._most_candidates = min(MAX_CANDIDATES, max(MIN_CANDIDATES, MAX_SAMPLED_NUMBERS // max(numbers, 1)))
        self._candidates: list[Candidate] = []
        self._found: Candidate | None = None
        self._still = StillCopies(self._sample)
        self._hooked: list[weakref.ref[nn.Module]] = []
        self._undo: list[Callable[[], None]] = []
        self._calls = 0  # without gradients, since the last update
        self._news: dict[str, float] = {}
        self.is_sampled = False
        """Whether it was called as a sampler does."""
        self.holder = ""
        """The class of what it was found in."""
        self.decay: float | None = None
        """None while it is not known."""

    @property
    def ema(self) -> Any:
        """A module, a list or a mapping; None while none is proven."""
        return None if self._found is None else self._found.value

    @torch.no_grad()
    def after_update(self, updates: int) -> None:
        """Looks at all objects that live at the updates 1, 8, 64, …: that may take a tenth of a second."""
        if self._found is not None and not self._is_alive(self._found):
            self._found = None
        if self._found is not None:
            values = [self._found.value]
        elif math.log2(updates) % 3 == 0:
            values = averages_like(self._network)[: self._most_candidates]
            self._hook(self._still.add(values, updates))
        else:
            values = [each.value for each in self._candidates if self._is_alive(each)]
        self._candidates = [
            Candidate(weakref.ref(each) if isinstance(each, nn.Module) else each, [t.clone() for t in sampled])
            for each in values
            if (sampled := self._sample(each)) is not None
        ]
        self._look_at_still(updates)

    @torch.no_grad()
    def before_update(self) -> None:
        for candidate in self._candidates:
            value = candidate.value
            now = None if value is None else self._sample(value)
            if now is not None and self._follows(candidate.before, now):
                candidate.before = []
                self._candidates, self._found, self.holder = [], candidate, type(value).__name__
                if isinstance(value, nn.Module):
                    self._hook([value])
                return

    def drop(self) -> None:
        self._candidates, self._found = [], None
        self._still.drop()
        while self._undo:
            self._undo.pop()()

    @property
    def still(self) -> int:
        """Updates for which a copy that is named as an EMA has not moved; 0 where there is none, or one that moves."""
        return 0 if self._found is not None else self._still.longest

    def pop_news(self) -> dict[str, float]:
        """Readings of what was seen since the last call, between two updates."""
        self._calls = 0
        news, self._news = self._news, {}
        return news

    def _look_at_still(self, updates: int) -> None:
        before = self.still
        self._still.look(updates)
        if before and (not self.still or self.still % TOLD_EVERY == 0):
            self._news[f"{CHECK.name}/{checks.EMA_STILL}"] = float(self.still)

    def _hook(self, modules: Sequence[nn.Module]) -> None:
        for module in modules:
            if not any(each() is module for each in self._hooked):
                self._hooked.append(weakref.ref(module))
                self._undo.append(hook_before_call(module, weakly(self._note_call)))

    def _note_call(self, *_: Any) -> None:
        if is_traced() or torch.is_grad_enabled():
            return
        self._calls += 1
        if self._calls >= MANY_CALLS and not self.is_sampled:
            self.is_sampled = True
            self._news[f"{CHECK.name}/{checks.EMA_CALLED}"] = 1.0

    def _follows(self, old: Sequence[Tensor], new: Sequence[Tensor]) -> bool:
        weights = dict(self._everything)
        w, e0, e1 = (
            torch.cat([each.detach().reshape(-1).double().cpu() for each in tensors])
            for tensors in ([local_of(weights[name].detach()) for name in self._names], old, new)
        )
        moved, apart = e1 - e0, e0 - w
        length, distance = float(moved.norm()), float(apart.norm())
        if length == 0 or distance == 0:
            return False
        decay = float((e1 - w) @ apart) / distance**2
        rounding = float(torch.finfo(old[0].dtype).eps) * float(e1.norm())
        left = float((e1 - decay * e0 - (1 - decay) * w).norm())
        if not -1e-6 <= decay < 1 or left > MAX_UNEXPLAINED_MOVE * length + rounding:
            return False
        if rounding / distance <= MAX_DECAY_ERROR * (1 - decay):
            self.decay = max(0.0, decay)
        return True

    def _sample(self, held: Any) -> list[Tensor] | None:
        if isinstance(held, nn.Module):
            named: Mapping[str, Any] = dict(held.named_parameters())
        elif isinstance(held, Mapping):
            named = held
        else:
            names = [name for name, p in self._everything if p.requires_grad or len(held) == len(self._everything)]
            named = dict(zip(names, held, strict=False))
        found = [named.get(name) for name in self._names]
        # As far as this process holds them: to put sharded ones together takes all processes.
        return (
            [local_of(each) for each in found if isinstance(each, Tensor)] if all(map(torch.is_tensor, found)) else None
        )

    def _is_alive(self, candidate: Candidate) -> bool:
        value = candidate.value
        # Held by the candidate, by this name and by the call alone: the script has let it go.
        return value is not None and (isinstance(value, nn.Module) or sys.getrefcount(value) > 3)
