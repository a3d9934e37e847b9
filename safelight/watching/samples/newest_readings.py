"""The newest numbers of a watched loop that are on the host, by the words of a loop: what `watch.step` returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from safelight.vocabulary import GRADIENT_NORM, LEARNING_RATE, LOSS, LOSS_DEVIATION, LOSS_SMOOTH

WORDS = {
    "loss": LOSS,
    "loss_smooth": LOSS_SMOOTH,
    "loss_std": LOSS_DEVIATION,
    "grad_norm": GRADIENT_NORM,
    "lr": LEARNING_RATE,
}


class NewestReadings:
    """A step is read some steps later, since nothing waits for the device: `step` says of which update they are."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {"findings": ()}
        self.stats: Mapping[str, Any] = MappingProxyType(self._known)

    def add(self, step: int, readings: Mapping[str, float]) -> None:
        found = {word: readings[signal.name] for word, signal in WORDS.items() if signal.name in readings}
        if "loss" in found and "loss_smooth" not in found:  # none of the last steps had a finite one
            found |= {"loss_smooth": math.nan, "loss_std": math.nan}
        self._known.update(step=step, **found)

    def report(self, code: str) -> None:
        """A finding that is new."""
        self._known["findings"] = (*self._known["findings"], code)
