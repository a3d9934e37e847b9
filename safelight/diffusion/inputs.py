"""One micro-batch as a step takes it: images, noise, timesteps and labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Inputs:
    """One micro-batch, on the host or on the device."""

    start: int  # global row of its first sample
    ids: np.ndarray  # dataset indices
    x0: Tensor
    noise: Tensor
    t: Tensor
    labels: Tensor | None

    def moved(self, send: Callable[[Tensor], Tensor]) -> Inputs:
        labels = None if self.labels is None else send(self.labels)
        return Inputs(self.start, self.ids, send(self.x0), send(self.noise), send(self.t), labels)
