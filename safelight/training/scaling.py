"""The loss scale of fp16 training: two device numbers that grow and back off without a host sync."""

from __future__ import annotations

import torch
from torch import Tensor

from safelight.config.tree import Precision
from safelight.monitors.finite import LOWEST_SCALE

FIRST_SCALE, GROWTH_INTERVAL = 65536.0, 2000


class LossScale:
    """Multiplies the loss before backward, and divides the gradients after. Constantly 1 unless fp16."""

    def __init__(self, precision: Precision, device: torch.device) -> None:
        self._reset(precision == "fp16", device)

    def _reset(self, active: bool, device: torch.device) -> None:
        self.active = active
        self.value = torch.full((), FIRST_SCALE if active else 1.0, device=device)
        self.good_steps = torch.zeros((), device=device)

    def use(self, precision: Precision) -> None:
        """A run that changes to or from fp16 searches for its scale anew."""
        if self.active != (precision == "fp16"):
            self._reset(not self.active, self.value.device)

    def unscale(self, gradients: list[Tensor]) -> None:
        if self.active:
            torch._foreach_mul_(gradients, 1 / self.value)

    def is_overflow(self, loss: Tensor, scale: Tensor | None = None) -> bool:
        """Whether a refused update only means that the scale was too large: it is halved, and nothing is wrong.
        `scale`: that of the step, where it was adjusted since."""
        return (
            self.active and bool(loss.isfinite().all()) and float(self.value if scale is None else scale) > LOWEST_SCALE
        )

    def adjust(self, refused: Tensor) -> None:
        """Halve after an overflow, double after 2,000 steps without one."""
        if not self.active:
            return
        counted = torch.where(refused > 0, 0.0, self.good_steps + 1)
        grown = torch.where(counted >= GROWTH_INTERVAL, self.value * 2, self.value)
        self.value = torch.where(refused > 0, self.value / 2, grown)
        self.good_steps = torch.where(counted >= GROWTH_INTERVAL, 0.0, counted)
