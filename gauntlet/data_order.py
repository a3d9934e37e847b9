"""The order in which images come: shuffled anew in every pass."""

from __future__ import annotations

import torch
from torch import Tensor


class DataOrder:
    """Hands out rows; has a generator of its own, as a data loader has."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size, self.shuffled = size, True
        self._generator = torch.Generator().manual_seed(seed)
        self._order = torch.empty(0, dtype=torch.long)

    def draw(self, count: int, classes: Tensor | None = None) -> Tensor:
        """The next rows of a set of `count`; with `classes`, the later ones more rarely."""
        if classes is not None:
            return torch.multinomial(1 / (1 + classes.double()), self.size, replacement=True, generator=self._generator)
        while len(self._order) < self.size:
            fresh = torch.randperm(count, generator=self._generator) if self.shuffled else torch.arange(count)
            self._order = torch.cat([self._order, fresh])
        rows, self._order = self._order[: self.size], self._order[self.size :]
        return rows % count

    def restart(self) -> None:
        """What is left of this pass is forgotten."""
        self._order = self._order[:0]
