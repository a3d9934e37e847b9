"""One optimizer step: accumulate, unscale, check, clip, update, EMA."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from safelight.config import Config
from safelight.config.tree import Optimizer
from safelight.diffusion.micro_batch import MicroBatch
from safelight.diffusion.objective import NoisedBatch, Objective
from safelight.healing.step_settings import StepSettings, effective_settings
from safelight.keys import derive_seed
from safelight.model.unet import predict
from safelight.monitors.parameters import join_norms
from safelight.monitors.suite import PartialGradient
from safelight.observing.observer import Observer, StepResult, UpdateStats
from safelight.processes.group import AsyncResult, ProcessGroup
from safelight.processes.reduction import Reduction
from safelight.training.clipping import global_norm
from safelight.training.ema import MAIN_EMA
from safelight.training.optimizer import learning_rate, make_update, prepare_update
from safelight.training.runtime import Runtime
from safelight.training.state import State

MAX_APPLIED_NORM = 1e18  # of a gradient
TIMED_PAIRS = 5  # of passes, that a choice is made by


class GradientCallback(Protocol):
    """Called when gradients are known and nothing is touched yet: may have the step repeated, with these inputs."""

    def __call__(
        self, step: int, inputs: Sequence[MicroBatch], loss: Tensor, norm: Tensor, refused: Tensor
    ) -> Sequence[MicroBatch] | None: ...


class Stepper:
    """Takes steps, each a function of its arguments and the state. All parts are passed in."""

    def __init__(
        self,
        config: Config,
        runtime: Runtime,
        objective: Objective,
        state: State,
        network: nn.Module,
        reduction: Reduction | None = None,
    ) -> None:
        """`network`: the model, or the model compiled. Without a `reduction` its steps are those of one process."""
        self.config, self.runtime, self.objective = config, runtime, objective
        self.state, self.network = state, network
        self._parameters = [parameter for _, parameter in state.weights.named_parameters]
        self._default = effective_settings(config, (), 0)
        self._buffers: list[tuple[Tensor, Tensor]] = []  # of the model, before the step
        self.reduction, self.group = (Reduction(), ProcessGroup()) if reduction is None else (reduction, runtime.group)

    def single_process(self) -> Stepper:
        """The same steps by this process alone, on its share of the batch."""
        if self.group.size == 1:
            return self
        return Stepper(self.config, self.runtime, self.objective, self.state, self.network)

    def step(
        self,
        inputs: Sequence[MicroBatch],
        step: int,
        step_settings: StepSettings | None = None,
        observer: Observer | None = None,
        on_gradients: GradientCallback | None = None,
        os_signal: int = 0,
    ) -> StepResult:
        """Without `step_settings`: as the config says. `os_signal`: the number of one that this process received; all
        get it."""
        step_settings, state, exact_parts = step_settings or self._default, self.state, self.config.train.shards
        state.loss_scale.use(step_settings.precision)
        if on_gradients is not None or self.group.size > 1 or exact_parts is not None:
            self._keep_buffers()
        losses, partial_gradient, gathered = list[Tensor](), None, list[AsyncResult]()
        if observer is not None:
            observer.begin_step()
        self.reduction.begin()
        for place, micro in enumerate(inputs):
            if place and exact_parts is not None:
                self._restore_buffers()  # spectral norm moves with every pass, and the number of passes must not matter
            last = place == len(inputs) - 1
            self.reduction.before_micro_batch(last=last)

            def announce(loss: Tensor, last: bool = last) -> None:
                losses.append(loss)
                if last and self.group.size > 1:
                    gathered.append(self._start_gather(losses, inputs, os_signal))

            self.accumulate(micro, step, step_settings, observer, announce)
            if place == 0 and observer is not None:
                partial_gradient = self._partial_gradient(micro)
            self.reduction.after_micro_batch()
            self.group.beat()
        self.reduction.finish()
        loss, t, shared_os_signal = self._finish_gather(gathered, losses, inputs, os_signal)
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self._parameters]
        state.loss_scale.unscale(gradients)
        norms = join_norms(torch.stack(torch._foreach_norm(gradients)), state.weights.sum_over_processes)
        norm = torch.linalg.vector_norm(norms)

        # Refused on all processes together, before anything is touched: weights, moments and counters stay clean. All
        # have the same gradients and losses here, so they agree without communicating.
        refused = 1 - (norm.isfinite() & loss.isfinite().all()).float()
        if on_gradients is not None and (again := on_gradients(step, inputs, loss, norm, refused)) is not None:
            self.discard_pass()
            if observer is not None:
                observer.repeat_step()
            return self.step(again, step, step_settings, observer, on_gradients, os_signal)
        limit = state.clipper.clip(gradients, norm)
        lr = learning_rate(step_settings.optimizer, step, self.config.train.steps)
        # Its square overflows float32 and would leave the second moment infinite.
        refused = torch.maximum(refused, (torch.minimum(norm, limit) > MAX_APPLIED_NORM).float())
        prepare_update(state.optimizer, lr, refused)
        if observer is not None:
            observer.before_update(step, lambda: gradients)
        refused = make_update(state.optimizer, step_settings.optimizer, lr, refused, state.weights.sum_over_processes)
        state.optimizer.zero_grad(set_to_none=True)
        scale = state.loss_scale.value
        state.loss_scale.adjust(refused)
        state.ema.update(step + 1)
        readings = []
        if observer is not None:
            update = UpdateStats(
                loss, t, norms, norm, limit, scale, refused, partial_gradient, state.ema.shadows[MAIN_EMA]
            )
            readings = observer.after_update(step, update)
        return StepResult(step, inputs, loss, norms, norm, scale, refused, lr, readings, shared_os_signal)

    def dry_run(self, inputs: Sequence[MicroBatch]) -> None:
        """Forward and backward of some micro-batches, without a trace: gradients are dropped, buffers restored."""
        self._keep_buffers()
        try:
            for micro in inputs:
                self.accumulate(micro.moved(self.runtime.to_device), 0)
        finally:
            self.discard_pass()
            self._buffers = []

    @torch.no_grad()
    def predict_again(
        self, inputs: Sequence[MicroBatch], step: int, step_settings: StepSettings | None = None
    ) -> list[tuple[NoisedBatch, Tensor]]:
        """What the network sees and answers in a step, without a trace."""
        kept = [(buffer, buffer.clone()) for buffer in self.state.model.buffers()]
        try:
            return [self.forward(micro, step, step_settings) for micro in inputs]
        finally:
            for buffer, value in kept:
                buffer.copy_(value)

    def is_finite(self, row: MicroBatch, step: int, step_settings: StepSettings | None = None) -> bool:
        """Whether the loss and gradient of one sample alone are finite. Leaves no gradient behind."""
        self.state.optimizer.zero_grad(set_to_none=True)
        try:
            loss = self.accumulate(row, step, step_settings)
            gradients = (p.grad for p in self.state.model.parameters() if p.grad is not None)
            return all(bool(tensor.isfinite().all()) for tensor in (loss, *gradients))
        finally:
            self.state.optimizer.zero_grad(set_to_none=True)

    def discard_pass(self) -> None:
        """Drops the gradients of a pass that does not become an update, and restores the buffers that it moved."""
        self.state.optimizer.zero_grad(set_to_none=True)
        self._restore_buffers()

    def _keep_buffers(self) -> None:
        self._buffers = [(buffer, buffer.clone()) for buffer in self.state.model.buffers()]

    @torch.no_grad()
    def _restore_buffers(self) -> None:
        for buffer, value in self._buffers:
            buffer.copy_(value)

    def _start_gather(self, losses: list[Tensor], inputs: Sequence[MicroBatch], os_signal: int) -> AsyncResult:
        """Before the last backward pass, which hides it."""
        t = torch.cat([micro.t for micro in inputs]).float()
        return self.group.start_all_gather(
            torch.cat([*(loss.float() for loss in losses), t, t.new_full((1,), os_signal)])
        )

    def _finish_gather(
        self, gathered: list[AsyncResult], losses: list[Tensor], inputs: Sequence[MicroBatch], os_signal: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Losses and timesteps of all processes, and the signal that any of them got."""
        if not gathered:
            loss, t = torch.cat(losses), torch.cat([micro.t for micro in inputs])
            return loss, t, torch.full((1,), float(os_signal), device=loss.device)
        rows, share = self.group.wait(gathered[0]), sum(map(len, losses))
        return rows[:, :share].flatten(), rows[:, share:-1].flatten().to(inputs[0].t.dtype), rows[:, -1].max()

    @torch.no_grad()
    def _partial_gradient(self, micro: MicroBatch) -> PartialGradient | None:
        """The gradient after the first of several micro-batches, on the scale of a mean over it."""
        batch, whole = len(micro.x0), self.config.train.batch_size
        if batch == whole or self.state.weights.shard is not None:  # sharded, it was added over the processes already
            return None
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        return PartialGradient(global_norm(gradients) * (whole / batch) / self.state.loss_scale.value, batch, whole)

    def accumulate(
        self,
        micro: MicroBatch,
        step: int,
        settings: StepSettings | None = None,
        observer: Observer | None = None,
        announce: Callable[[Tensor], None] = lambda loss: None,
    ) -> Tensor:
        """Forward and backward of one micro-batch; returns its unweighted losses. `announce` gets them in between."""
        noised, prediction = self.forward(micro, step, settings)
        unweighted, weighted = self.objective.loss(prediction, noised)
        if observer is not None:
            shown = micro.t, micro.x0, micro.noise, noised.x_t, noised.target, prediction.detach(), micro.labels
            observer.add_forward_pass(weighted.detach(), *shown)
        announce(unweighted.detach())
        self.backward(weighted)
        return unweighted.detach()

    def backward(self, weighted: Tensor) -> None:
        """The sum over a micro-batch divided by the whole batch: any number of micro-batches adds up the same."""
        (weighted.sum() * (self.state.loss_scale.value / self.config.train.batch_size)).backward()

    def trial_step(self, inputs: Sequence[MicroBatch], step: int, optimizer: Optimizer) -> float:
        """An update with other settings. The loss before it, over that of a network that always predicts 0, on the same
        images and noise; infinite where it is not finite."""
        noised = [self.objective.add_noise(micro.x0, micro.noise, micro.t) for micro in inputs]
        zeros = [self.objective.loss(torch.zeros_like(each.target), each)[0] for each in noised]
        loss = self.step(inputs, step, replace(self._default, optimizer=optimizer)).loss
        ratio = float(loss.mean() / torch.cat(zeros).mean().clamp(min=1e-12))
        return ratio if math.isfinite(ratio) else math.inf

    def forward(
        self, micro: MicroBatch, step: int, step_settings: StepSettings | None = None
    ) -> tuple[NoisedBatch, Tensor]:
        noised = self.objective.add_noise(micro.x0, micro.noise, micro.t)
        self.runtime.seed(derive_seed(self.config.train.seed, "dropout", step, micro.start))
        with self.runtime.autocast((step_settings or self._default).precision):
            return noised, predict(self.network, *self.objective.input(noised), micro.labels)


def times_as_fast(one: Stepper, other: Stepper, inputs: Sequence[MicroBatch]) -> float:
    """Of passes in turns, so that what else the machine does hits both alike: how many times as fast the other is, by
    the median. Leaves no trace."""
    ratios, clock = list[float](), time.perf_counter
    for _ in range(TIMED_PAIRS + 1):
        begun = clock()
        one.dry_run(inputs)
        between = clock()
        other.dry_run(inputs)
        ratios.append((between - begun) / max(clock() - between, 1e-9))
    return statistics.median(ratios[1:])  # the first also pays for what is loaded and tuned once


def seconds_per_step(stepper: Stepper, inputs: Sequence[MicroBatch]) -> float:
    """Seconds of a second forward and backward, which leave no trace: the first one also pays for what is loaded and
    tuned once."""
    stepper.dry_run(inputs)
    start = time.perf_counter()
    stepper.dry_run(inputs)
    if stepper.runtime.device.type == "cuda":
        torch.cuda.synchronize(stepper.runtime.device)
    return time.perf_counter() - start
