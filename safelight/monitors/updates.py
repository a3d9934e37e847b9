"""What an update did to the weights, and how far the EMA lies behind; every so often, for it reads them all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from safelight.monitors.parameters import ParameterBlocks, ReadNorms, SumOverProcesses, join_norms
from safelight.monitors.reading_buffer import PendingReading, ShardReduction
from safelight.monitors.shards import local_of
from safelight.vocabulary import EMA_DISTANCE, UPDATE_RATIO, WEIGHT_NORM

TINY = float(np.finfo(np.float32).tiny)


class UpdateMonitor:
    """Holds a copy of the weights for the length of one update."""

    def __init__(
        self, parts: ParameterBlocks, parameters: Sequence[Tensor], sum_over_processes: SumOverProcesses | None = None
    ) -> None:
        self._parts, self._parameters, self._sum_over_processes = parts, list(parameters), sum_over_processes
        self._before: list[Tensor] | None = None
        self._norms = ReadNorms([weight.numel() for weight in self._weights()])

    @torch.no_grad()
    def before(self) -> None:
        self._before = [weight.clone() for weight in self._weights()]

    @torch.no_grad()
    def after(self, average: Sequence[Tensor] | None) -> PendingReading:
        """`average`: the EMA weights, in the same order."""
        assert self._before is not None, "before() comes first"
        before, self._before = self._before, None
        norms = [self._norms.of(before)]
        weights = self._weights()
        torch._foreach_sub_(before, weights)
        norms.append(self._norms.of(before))
        if average is not None:
            near = [local_of(shadow).to(weight.device) for shadow, weight in zip(average, weights, strict=True)]
            norms.append(self._norms.of(torch._foreach_sub(weights, near)))
        joined = join_norms(torch.stack(norms), self._sum_over_processes)
        return PendingReading(joined.unbind(), self._read, ShardReduction("moves", also=("apart",)))

    def _weights(self) -> list[Tensor]:
        """As far as this process holds them."""
        return [local_of(parameter.detach()) for parameter in self._parameters]

    def _read(self, weights: np.ndarray, moved: np.ndarray, apart: np.ndarray | None = None) -> dict[str, float]:
        readings: dict[str, float] = {}
        lengths, changes = (self._parts.norms(norms).tolist() for norms in (weights, moved))
        for name, length, change in zip(self._parts.names, lengths, changes, strict=True):
            readings[f"{UPDATE_RATIO.name}/{name}"] = change / max(length, TINY)
            readings[f"{WEIGHT_NORM.name}/{name}"] = length
        if apart is not None:
            distance = np.linalg.norm(apart.astype(np.float64)) / max(np.linalg.norm(weights.astype(np.float64)), TINY)
            readings[EMA_DISTANCE.name] = float(distance)
        return readings
