"""Measures every step, of our trainer or a watched loop; brings readings to the host, records and diagnoses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from safelight.diffusion.micro_batch import MicroBatch
from safelight.monitors.reading_buffer import PendingReading, ReadingBuffer, Receiver
from safelight.monitors.suite import Monitors, PartialGradient
from safelight.observing.live_diagnosis import LiveDiagnosis
from safelight.probes.forward_pass import ForwardPass
from safelight.probes.probe_runner import ProbeRunner
from safelight.probes.skill import SkillProbe


@dataclass(frozen=True, slots=True)
class StepResult:
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
    os_signal: Tensor  # number of a signal that one of the processes received, or 0


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """What is known of an update, still on the device."""

    loss: Tensor  # one for each sample
    t: Tensor | None
    norms: Tensor  # of the gradient of each parameter, before clipping
    norm: Tensor  # of all together
    limit: Tensor  # of the clipping
    scale: Tensor  # of the loss
    refused: Tensor  # 1 where weights were left as they are
    partial_gradient: PartialGradient | None = None
    ema: Sequence[Tensor] | None = None


class Observer:
    """Our own trainer and `safelight.watch` show their steps to the same one. It measures and never acts."""

    def __init__(
        self,
        record: Receiver,
        monitors: Monitors,
        probe_runner: ProbeRunner | None = None,
        diagnosis: LiveDiagnosis | None = None,
        skill: SkillProbe | None = None,
        *,
        flush_by_time: bool = True,
    ) -> None:
        """`skill`: of a loop without a fixed set of its own. `flush_by_time`: see `ReadingBuffer`."""
        self.monitors, self.probe_runner, self._diagnosis = monitors, probe_runner, diagnosis
        self._skill = skill
        self._record, self._flush_by_time = record, flush_by_time
        self.forward_passes: list[ForwardPass] = []  # of the step that is being made
        self._buffer = ReadingBuffer(record, flush_by_time=flush_by_time)

    # --- inside a step --------------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        self.forward_passes = []

    def add_forward_pass(self, loss: Tensor, *tensors: Tensor | None) -> None:
        """One micro-batch: the loss, and as `ForwardPass` lists them t, x0, noise, x_t, target, pred and labels."""
        if self.probe_runner is not None:
            self.forward_passes.append(ForwardPass(loss, *tensors, call=self.probe_runner.pop_call()))

    def repeat_step(self) -> None:
        """The step is made once more: what was seen of it does not count."""
        self.begin_step()
        if self.probe_runner is not None:
            self.probe_runner.begin_again()

    def before_update(self, step: int, gradients: Callable[[], Sequence[Tensor]]) -> None:
        """Gradients are complete, weights are the old ones."""
        if self.monitors.reads_all_weights(step):
            self.monitors.before_update(step, gradients())
        if self.probe_runner is not None:
            self.probe_runner.before_update()

    def after_update(self, step: int, update: UpdateStats) -> list[PendingReading]:
        passes, self.forward_passes = self.forward_passes, []
        found = self.monitors.after_update(
            step,
            loss=update.loss,
            t=update.t,
            norms=update.norms,
            norm=update.norm,
            limit=update.limit,
            scale=update.scale,
            refused=update.refused,
            partial_gradient=update.partial_gradient,
            average=update.ema,
        )
        if self.probe_runner is not None and passes:
            found += self.probe_runner.after_update(passes)
            found += [] if self._skill is None else self._skill.after_update(passes)
        return found

    # --- between steps --------------------------------------------------------------------------------------------

    def add(self, step: int, pending: Sequence[PendingReading], host_readings: Mapping[str, float]) -> None:
        """The readings of a step; `host_readings` are on the host already."""
        self._buffer.add(step, pending, host_readings)

    @property
    def is_due(self) -> bool:
        """Whether a window of steps is full."""
        return self._buffer.is_due

    def read(self, count: int | None = None) -> list[dict[str, float]]:
        """The readings of every step since the last time, or of the first `count`; they are in the record now."""
        return self._buffer.flush(count)

    def diagnose(self, step: int, *, at_last: bool = False) -> None:
        if self._diagnosis is not None:
            self._diagnosis.finish(step) if at_last else self._diagnosis.poll(step)

    def hasten_diagnosis(self) -> None:
        if self._diagnosis is not None:
            self._diagnosis.hasten()

    def restart(self) -> None:
        """The run went back: steps that were not read yet are given up, and repeats are expected."""
        self._buffer = ReadingBuffer(self._record, flush_by_time=self._flush_by_time)
        if self.probe_runner is not None:
            self.probe_runner.forget()
        if self._diagnosis is not None:
            self._diagnosis.restart()

    def close(self) -> None:
        if self.probe_runner is not None:
            self.probe_runner.close()
