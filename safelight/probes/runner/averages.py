"""The EMA of a loop: whether it moves with every update, and towards the weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from safelight.monitors.shards import local_of
from safelight.probes.runner.guard import ProbeGuard
from safelight.probes.runner.inspected_loop import InspectedLoop
from safelight.probes.update import compare_with_weights, measure_ema


class EmaProbe:
    """Holds copies of the averages between two looks."""

    def __init__(self, subject: InspectedLoop, named: Sequence[tuple[str, nn.Parameter]], guard: ProbeGuard) -> None:
        self._subject, self._named, self._guard = subject, named, guard
        self.forget()

    def forget(self) -> None:
        self._old: list[Tensor] | None = None
        self._at_call: list[Tensor] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to compare the next look with."""
        return self._old is not None

    def has_moved(self, is_first: bool) -> bool | None:
        """Since the first call of the update: an EMA moves with an update, not between micro-batches. None where that
        is not known."""
        ema = self._subject.read_ema()
        if is_first:
            self._at_call = None if ema is None else [each.clone() for each in ema]
            return None
        if ema is None or self._at_call is None:
            return None
        return not all(map(torch.equal, ema, self._at_call))

    def measure(self, is_due: bool) -> dict[str, float]:
        """Between two updates: the EMA before the last one, the EMA now, and the weights."""
        old, readings = self._old, dict[str, float]()
        if old is None and not is_due:
            return readings
        ema, weights = self._subject.read_ema(), [local_of(parameter.detach()) for _, parameter in self._named]
        if ema is not None and len(ema) == len(weights):
            readings |= self._guard.measure("average", compare_with_weights, ema, weights)
        if ema is not None and old is not None and len(old) == len(ema) == len(weights):
            readings |= self._guard.measure("average", measure_ema, old, ema, weights)
        self._old = [each.clone() for each in ema] if is_due and ema is not None else None
        return readings
