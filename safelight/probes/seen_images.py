"""The images that a loop trains on, as far as its first steps show them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from safelight.probes.call_template import Key
from safelight.yardstick.fixed_samples import SIZE

MOST = 4096  # images
MOST_BYTES = 64_000_000


def most_images(bytes_each: int) -> int:
    return min(MOST, MOST_BYTES // max(1, bytes_each))


class SeenImages:
    """Clean images as they were passed, kept on their device within a bound: nothing waits for it. Beside the first of
    them what else the network was called with for them."""

    def __init__(self) -> None:
        self._images: list[Tensor] = []
        self._extras: dict[Key, list[Tensor]] = {}
        self._count, self.is_full = 0, False

    def __len__(self) -> int:
        return self._count

    def add(self, x0: Tensor, extras: Mapping[Key, Tensor]) -> None:
        bytes_each = x0[0].numel() * x0.element_size()
        x0 = x0.detach()[: max(0, most_images(bytes_each) - self._count)].clone()
        for key, values in extras.items():
            if self._count < SIZE:
                self._extras.setdefault(key, []).append(values[: len(x0)][: SIZE - self._count].clone())
        self._images += [x0] if len(x0) else []
        self._count += len(x0)
        self.is_full = self._count >= most_images(bytes_each)

    def images(self) -> Tensor:
        """On the host."""
        return torch.cat([each.float().cpu() for each in self._images])

    def extras(self) -> dict[Key, Tensor]:
        """Of the first `SIZE` images."""
        return {key: torch.cat(values) for key, values in self._extras.items()}


class SeenInputs:
    """The scale of clean images, from noisy ones alone: x_t has a times their mean, and a² times their mean square plus
    s²."""

    def __init__(self) -> None:
        self._sums: Tensor | None = None

    def add(self, x: Tensor, a: Tensor, s: Tensor) -> None:
        """`a` and `s`: one for each sample."""
        x, a, s = x.detach().float().flatten(1), a.flatten().float(), s.flatten().float()
        left = x.square().mean(1) - s.square()
        new = torch.stack([(a * x.mean(1)).sum(), a.square().sum(), (a.square() * left).sum(), a.pow(4).sum()])
        self._sums = new if self._sums is None else self._sums + new

    def mean_and_deviation(self) -> tuple[float, float]:
        """By least squares; NaN where nothing was seen."""
        if self._sums is None:
            return math.nan, math.nan
        first, over_a, second, over_kept = self._sums.tolist()
        mean = first / max(over_a, 1e-12)
        return mean, math.sqrt(max(0.0, second / max(over_kept, 1e-12) - mean * mean))
