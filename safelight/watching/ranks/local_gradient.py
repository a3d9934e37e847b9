"""The gradient that one process computed from its own samples, beside what the optimizer is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from safelight.capturing.patches import weakly
from safelight.monitors.shards import WHOLE

COMPARED = 64  # numbers of one parameter


class LocalGradient:
    """Of a parameter that every process has as a whole: a hook sees its gradient before any other process adds to it.
    Sharded ones have none: FSDP adds them up where they are computed."""

    def __init__(self, parameters: Sequence[nn.Parameter], pieces: Sequence[str]) -> None:
        whole = [p for p, piece in zip(parameters, pieces, strict=True) if piece == WHOLE and p.numel()]
        self._parameter = max(whole, key=lambda p: (p.numel() <= 20_000, p.dim() > 1, p.numel()), default=None)
        self._own: Tensor | None = None
        self._is_wanted = False
        self._undo: list[Callable[[], None]] = []
        if self._parameter is not None:
            self._undo.append(self._parameter.register_hook(_plain(weakly(self._add))).remove)

    def begin(self, *, is_wanted: bool) -> None:
        self._is_wanted, self._own = is_wanted, None

    def take(self) -> dict[str, np.ndarray]:
        """[own, that of the optimizer] at some places; nothing where one is not known."""
        own, parameter = self._own, self._parameter
        if own is None or parameter is None or parameter.grad is None or parameter.grad.is_sparse:
            return {}
        return {"parts": torch.stack([own, _some(parameter.grad)]).cpu().numpy()}

    def close(self) -> None:
        self._parameter = self._own = None
        while self._undo:
            self._undo.pop()()

    def _add(self, gradient: Tensor) -> None:
        """Just before it is added to what is there. What was cleared since does not count."""
        if not self._is_wanted or self._parameter is None or gradient.is_sparse:
            return
        there = self._parameter.grad
        try:
            is_cleared = there is None or not bool(there.any())
            self._own = _some(gradient) if is_cleared or self._own is None else self._own + _some(gradient)
        except Exception:  # in the middle of the backward pass of the loop
            self.close()


@torch.no_grad()
def _some(gradient: Tensor) -> Tensor:
    flat = gradient.detach().reshape(-1)
    return flat[:: max(1, len(flat) // COMPARED)][:COMPARED].double().clone()


def _plain(hook: Callable[[Tensor], None]) -> Callable[[Tensor], None]:
    hook.__torch_unserializable__ = True  # type: ignore[attr-defined]  # else torch warns of it wherever one is saved
    return hook
