"""One small tensor, watched for all weights: does it move, does its EMA, is its gradient a new one?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from safelight import checks
from safelight.monitors.shards import local_of
from safelight.probes.update import dense

TINY = 1e-30


class MonitoredParameter:
    """Remembers the tensor before an update, and the gradient of the step before."""

    def __init__(self, parameter: nn.Parameter | None) -> None:
        self._parameter = parameter
        self._suspected = False  # something else than the optimizer has touched it
        self.forget()

    def forget(self) -> None:
        self._before: tuple[Tensor, Tensor | None] | None = None  # the update: the tensor and its gradient
        self._last: tuple[Tensor, Tensor] | None = None  # a gradient, and its norm
        self._ema: Tensor | None = None  # as it was at the last check
        self._updated: Tensor | None = None  # as the last update left the tensor
        self._version: int | None = None  # torch's count of its changes, at that moment

    def measure_ema(self, ema: Tensor) -> dict[str, Tensor]:
        """Whether the EMA of the tensor is what it was at the last check, however long ago that was."""
        last, self._ema = self._ema, ema.detach().clone()
        if last is None or last.shape != self._ema.shape:
            return {}
        return {checks.EMA_SAME: (self._ema == last).all().float()}

    def just_updated(self, closely: bool) -> None:
        """What is there now must still be there at the next update. At steps that are not checked closely only the
        version counter is kept, which costs nothing and misses changes through `.data`."""
        p = self._parameter
        if not closely:
            self._last = None  # the next gradient has none before it
        keep = closely or (self._suspected and p is not None and p.device.type == "cpu")  # no waiting for a device
        self._updated = _own(p).clone() if p is not None and keep else None
        self._version = None if p is None else p._version

    def was_changed(self) -> bool:
        """Whether the tensor was certainly changed between two updates. Weights that were swapped for others and put
        back were not: from a raised version counter on, values are compared."""
        updated, self._updated = self._updated, None
        p = self._parameter
        if p is None:
            return False
        self._suspected |= self._version is not None and p._version != self._version
        own = _own(p)
        if updated is None or updated.shape != own.shape or updated.dtype != own.dtype:
            return False
        return not torch.equal(own, updated) and not bool(own.isnan().any())

    def before_update(self) -> None:
        if self._parameter is not None:
            grad = self._parameter.grad
            self._before = _own(self._parameter).clone(), None if grad is None else dense(grad).float().flatten()

    def after_update(self) -> dict[str, Tensor]:
        if self._parameter is None or self._before is None:
            return {}
        (old, grad), self._before = self._before, None
        readings: dict[str, Tensor] = {checks.SAMPLE_PARAMETER_MOVED: 1 - (_own(self._parameter) == old).all().float()}
        last, self._last = self._last, None
        if grad is not None:
            norm = readings[checks.SAMPLE_PARAMETER_GRADIENT] = torch.linalg.vector_norm(grad)
            self._last = grad, norm
            if last is not None:
                readings[checks.SAMPLE_PARAMETER_ECHO] = torch.dot(grad, last[0]) / (norm * last[1]).clamp(min=TINY)
        return readings


def _own(parameter: nn.Parameter) -> Tensor:
    """As far as this process holds it."""
    return local_of(parameter.detach())
