"""One small tensor, watched for all weights: does it move, does its EMA, is its gradient a new one?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from safelight import checks
from safelight.probes.replay import dense

TINY = 1e-30


class SampleParameter:
    """Remembers the tensor before an update, and the gradient of the step before."""

    def __init__(self, parameter: nn.Parameter | None) -> None:
        self._parameter = parameter
        self._before: tuple[Tensor, Tensor | None] | None = None
        self._last: tuple[Tensor, Tensor] | None = None  # a gradient, and its norm
        self._shadow: Tensor | None = None  # as it was at the last look
        self._left: Tensor | None = None  # as the last update left the tensor
        self._version: int | None = None  # torch's count of its changes, at that moment
        self._suspected = False  # something else than the optimizer has touched it

    def forget(self) -> None:
        self._before, self._last, self._shadow, self._left, self._version = None, None, None, None, None

    def look_at_average(self, shadow: Tensor) -> dict[str, Tensor]:
        """Whether the EMA of the tensor is what it was at the last look, however long ago that was."""
        last, self._shadow = self._shadow, shadow.detach().clone()
        if last is None or last.shape != self._shadow.shape:
            return {}
        return {checks.AVERAGE_SAME: (self._shadow == last).all().float()}

    def leave(self, closely: bool) -> None:
        """After an update: what is there now must still be there at the next one. At steps that are not checked closely
        only the version counter is kept, which costs nothing and misses changes through `.data`."""
        p = self._parameter
        if not closely:
            self._last = None  # the next gradient has none before it
        keep = closely or (self._suspected and p is not None and p.device.type == "cpu")  # no waiting for a device
        self._left = p.detach().clone() if p is not None and keep else None
        self._version = None if p is None else p._version

    def look_between(self) -> float | None:
        """1 where the tensor was changed between two updates; None where it was not, or is not known. Weights that were
        swapped for others and put back were not changed: from a raised version counter on, values are compared."""
        left, self._left = self._left, None
        p = self._parameter
        if p is None:
            return None
        self._suspected |= self._version is not None and p._version != self._version
        if left is None or left.shape != p.shape or left.dtype != p.dtype:
            return None
        return None if torch.equal(p.detach(), left) or bool(p.detach().isnan().any()) else 1.0

    def keep(self) -> None:
        """Just before an update."""
        if self._parameter is not None:
            grad = self._parameter.grad
            self._before = self._parameter.detach().clone(), None if grad is None else dense(grad).float().flatten()

    def look(self) -> dict[str, Tensor]:
        """Just after it."""
        if self._parameter is None or self._before is None:
            return {}
        (old, grad), self._before = self._before, None
        found: dict[str, Tensor] = {checks.SENTINEL_MOVED: 1 - (self._parameter.detach() == old).all().float()}
        last, self._last = self._last, None
        if grad is not None:
            norm = found[checks.SENTINEL_GRADIENT] = torch.linalg.vector_norm(grad)
            self._last = grad, norm
            if last is not None:
                found[checks.SENTINEL_ECHO] = torch.dot(grad, last[0]) / (norm * last[1]).clamp(min=TINY)
        return found
