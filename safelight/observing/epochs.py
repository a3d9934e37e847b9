"""The end of each pass over the training images: its mean loss as a signal, an event and a line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from safelight import vocabulary
from safelight.data.batches import Batches
from safelight.observing.recorder import Recorder

LINES = 10  # at most so many passes of a run are printed; all are recorded


class EpochSum(Protocol):
    """What a checkpoint keeps of the pass that is under way, so that a resume gives the same mean."""

    epoch_loss: float
    epoch_steps: int


class EpochLog:
    """Batches run on across the end of a pass: a step belongs to the pass in which it ends."""

    def __init__(self, batches: Batches, steps: int, record: Recorder, say: Callable[[str], None]) -> None:
        self._batches, self._record, self._say = batches, record, say
        self._printed_every = max(1, math.ceil(self._passes(steps) / LINES))

    def _passes(self, steps: int) -> int:
        return int(self._batches.epoch(steps) + 1e-9)

    def add(self, step: int, loss: float, total: EpochSum) -> None:
        """After every step that was read, in order. A loss that is not finite is left out of the mean."""
        if math.isfinite(loss):
            total.epoch_loss += loss
            total.epoch_steps += 1
        epoch = self._passes(step + 1)
        if epoch == self._passes(step):
            return
        mean = total.epoch_loss / total.epoch_steps if total.epoch_steps else math.nan
        self._record.add(step, {vocabulary.EPOCH.name: float(epoch), vocabulary.EPOCH_LOSS.name: mean})
        self._record.event(step, "epoch", epoch=epoch, loss=mean, steps=total.epoch_steps)
        if epoch % self._printed_every == 0:
            self._say(f"Epoch {epoch:,} ended at step {step + 1:,}: mean loss {mean:.4g}.")
        total.epoch_loss, total.epoch_steps = 0.0, 0
