"""What one step did, whoever trained it: still on the device, to be looked at and not touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from safelight.diffusion.micro_batch import MicroBatch
from safelight.monitors.reading_buffer import PendingReading


@dataclass(frozen=True, slots=True)
class StepView:
    """What one step did, still on the device: monitors may look, not touch."""

    step: int  # index of the update, from 0
    inputs: Sequence[MicroBatch]  # of this process
    loss: Tensor  # [batch] unweighted, of all processes
    norms: Tensor  # [parameters], before clipping
    norm: Tensor  # of all together
    scale: Tensor
    refused: Tensor  # 1 where the update was refused
    lr: float
    readings: Sequence[PendingReading]  # of the monitors
    stop_signal: Tensor  # number of a signal that one of the processes received, or 0
