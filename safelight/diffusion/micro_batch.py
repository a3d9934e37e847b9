"""One micro-batch as a step takes it: images, noise, timesteps and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One micro-batch, on the host or on the device."""

    start: int  # global row of its first sample
    ids: np.ndarray  # dataset indices
    x0: Tensor
    noise: Tensor
    t: Tensor
    labels: Tensor | None

    def moved(self, send: Callable[[Tensor], Tensor]) -> MicroBatch:
        labels = None if self.labels is None else send(self.labels)
        return replace(self, x0=send(self.x0), noise=send(self.noise), t=send(self.t), labels=labels)

    def rows(self) -> Iterator[MicroBatch]:
        """Each sample as a micro-batch of its own."""
        for i in range(len(self.ids)):
            row = slice(i, i + 1)
            labels = None if self.labels is None else self.labels[row]
            yield MicroBatch(self.start + i, self.ids[row], self.x0[row], self.noise[row], self.t[row], labels)
