"""All monitors of one network, in the order a step meets them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from safelight.monitors.gradients import GradientMonitor
from safelight.monitors.loss import LossMonitor, NoiseBinning, RecentLosses
from safelight.monitors.parameters import SumOverProcesses, find_parts, trainable_parameters
from safelight.monitors.reading_buffer import PendingReading, ShardReduction
from safelight.monitors.updates import UpdateMonitor
from safelight.vocabulary import LOSS_SCALE, REFUSED

RECENT_LOSSES = "loss/recent"  # in checkpoints
FULL_READ_INTERVAL = 64  # steps between two that read every weight: one in each cell of the record


@dataclass(frozen=True, slots=True)
class PartialGradient:
    """The gradient of a part of the batch, where it was accumulated in pieces."""

    norm: Tensor
    """The norm of the mean over the part, as if it were a batch of its own."""
    batch: int
    whole: int


class Monitors:
    """Measures and changes nothing. Everything stays on the device until the buffer is flushed."""

    def __init__(
        self,
        model: nn.Module,
        noise_binning: NoiseBinning | None,
        named_parameters: Sequence[tuple[str, nn.Parameter]] | None = None,
        sum_over_processes: SumOverProcesses | None = None,
        *,
        is_sharded: bool = False,
    ) -> None:
        """`noise_binning`: of times; None if the process is not known, and then there is no loss by noise level.
        `named_parameters`: what stands for the trained parameters of the model; with `sum_over_processes`, rows of
        them. `is_sharded`: they are but pieces, and another process has the others."""
        named_parameters = trainable_parameters(model) if named_parameters is None else named_parameters
        self.parts = find_parts(named_parameters)
        self._loss = None if noise_binning is None else LossMonitor(noise_binning)
        self._recent = RecentLosses()
        self._gradients = GradientMonitor(self.parts, sum_over_processes)
        self._updates = UpdateMonitor(self.parts, [parameter for _, parameter in named_parameters], sum_over_processes)
        self._reads_numbers = not is_sharded and sum_over_processes is None
        self._zeros: list[PendingReading] = []

    def set_noise_binning(self, noise_binning: NoiseBinning) -> None:
        """When the process is known: from now on there is a loss by noise level."""
        self._loss = LossMonitor(noise_binning)

    def reads_all_weights(self, step: int) -> bool:
        return step % FULL_READ_INTERVAL == 0

    def before_update(self, step: int, gradients: Sequence[Tensor]) -> None:
        """`gradients` after unscaling, one for each trained parameter."""
        if self.reads_all_weights(step):
            self._updates.before()
            self._zeros = [self._gradients.measure_zeros(gradients)]
            if self._reads_numbers:
                self._zeros.append(self._gradients.measure_numbers(gradients))

    def after_update(
        self,
        step: int,
        *,
        loss: Tensor,
        t: Tensor | None,
        norms: Tensor,
        norm: Tensor,
        limit: Tensor,
        scale: Tensor,
        refused: Tensor,
        partial_gradient: PartialGradient | None,
        average: Sequence[Tensor] | None,
    ) -> list[PendingReading]:
        """The readings of the step, as vectors on the device."""
        scalars = torch.stack([each.reshape(()).float() for each in (norm, limit, scale, refused)])
        pieces = [PendingReading((norms, scalars), self._read_gradients, ShardReduction("norms", 1))]
        if partial_gradient is not None:
            noise_scale = functools.partial(
                self._gradients.measure_noise_scale, partial_gradient.batch, partial_gradient.whole
            )
            pieces.append(PendingReading((torch.stack([partial_gradient.norm, norm]).float(),), noise_scale))
        if self._loss is not None and t is not None:
            pieces.append(PendingReading((loss, t), functools.partial(self._loss.measure, step)))
        pieces.append(self.read_loss(step, loss))
        if self.reads_all_weights(step):
            pieces += [*self._zeros, self._updates.after(average)]
            self._zeros = []
        return pieces

    def read_loss(self, step: int, loss: Tensor) -> PendingReading:
        """`loss` [n]: its mean, and that of the last steps."""
        return PendingReading((loss,), lambda losses: self._recent.measure(step, float(losses.mean(dtype=np.float64))))

    def _read_gradients(self, norms: np.ndarray, scalars: np.ndarray) -> dict[str, float]:
        norm, limit, scale, refused = scalars.tolist()
        return self._gradients.measure(norms, norm, limit) | {LOSS_SCALE.name: scale, REFUSED.name: refused}

    def state(self) -> dict[str, Tensor]:
        """What is remembered over the steps that were brought to the host: a few small vectors, kept in checkpoints."""
        recent = {RECENT_LOSSES: torch.from_numpy(self._recent.memory.copy())}
        return self._gradients.state() | recent | ({} if self._loss is None else self._loss.state())

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor]) -> None:
        if tensors:
            self._gradients.restore(tensors)
            if RECENT_LOSSES in tensors:  # not in checkpoints of before
                self._recent.memory[:] = tensors[RECENT_LOSSES].double().numpy()
            if self._loss is not None:
                self._loss.restore(tensors)
