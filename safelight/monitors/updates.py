"""What an update did to the weights, and how far the average lies behind; every so often, for it reads them all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from safelight.monitors.modules import Parts
from safelight.monitors.pool import Piece
from safelight.vocabulary import EMA_DISTANCE, UPDATE_RATIO, WEIGHT_NORM


class UpdateMonitor:
    """Holds a copy of the weights for the length of one update."""

    def __init__(self, parts: Parts, parameters: Sequence[Tensor]) -> None:
        self._parts, self._parameters = parts, list(parameters)
        self._ratios = tuple(f"{UPDATE_RATIO.name}/{name}" for name in parts.names)
        self._norms = tuple(f"{WEIGHT_NORM.name}/{name}" for name in parts.names)
        self._before: list[Tensor] | None = None

    @torch.no_grad()
    def before(self) -> None:
        self._before = [parameter.detach().clone() for parameter in self._parameters]

    @torch.no_grad()
    def after(self, average: Sequence[Tensor] | None) -> list[Piece]:
        """`average`: the averaged weights, in the same order."""
        assert self._before is not None, "before() comes first"
        weights = self._squares(self._before)
        torch._foreach_sub_(self._before, self._parameters)
        moved = self._squares(self._before)
        self._before = None
        tiny = torch.finfo(torch.float32).tiny
        pieces = [
            Piece(self._ratios, (moved / weights.clamp(min=tiny)).sqrt()),
            Piece(self._norms, weights.sqrt()),
        ]
        if average is not None:
            apart = torch._foreach_sub([parameter.detach() for parameter in self._parameters], list(average))
            distance = (self._squares(apart).sum() / weights.sum().clamp(min=tiny)).sqrt()
            pieces.append(Piece((EMA_DISTANCE.name,), distance[None]))
        return pieces

    def _squares(self, tensors: Sequence[Tensor]) -> Tensor:
        norms = torch.stack(torch._foreach_norm(list(tensors)))
        return self._parts.total(norms.float().square())
