"""A few steps of a foreign model on one batch, under the same observer as any training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from safelight.diffusion.process import per_sample
from safelight.diffusion.targets import target_of
from safelight.errors import UsageError
from safelight.monitors.loss import NoiseBinning, noise_binning_of_draws, noise_binning_of_table
from safelight.monitors.parameters import MAX_NAMES_IN_EVENT, trainable_parameters
from safelight.monitors.suite import Monitors
from safelight.observing.memory_record import MemoryRecord
from safelight.observing.observer import Observer
from safelight.probes.forward_pass import ProcessSpec
from safelight.probes.probe_runner import ProbeRunner
from safelight.probes.runner.inspected_loop import InspectedLoop
from safelight.vocabulary import LEARNING_RATE, LOSS
from safelight.watching.foreign import log_snr_of
from safelight.watching.hooks import OptimizerHooks
from safelight.words import first_line

STEPS = 10  # a part without a gradient is told from a zero layer after eight
RATE = 1e-4  # of the optimizer that is used where none is given

Series = dict[str, tuple[list[int], list[float]]]
Events = list[tuple[int, str, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class TrialBatch:
    """One noised batch."""

    x_t: Tensor
    t: Tensor
    noise: Tensor
    target: Tensor
    shown: Tensor
    """What the network sees of x_t."""
    told: Tensor
    """What it is told of t."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A batch, and all that turns it into inputs of the model."""

    images: Tensor
    labels: Tensor | None
    declared: ProcessSpec
    call: Callable[[nn.Module, Tensor, Tensor, Tensor | None], Tensor]
    draw: torch.Generator

    @property
    def timesteps(self) -> int:
        return self.declared.timesteps or 1000

    def times(self, places: Tensor) -> Tensor:
        """At shares of the way from the least noise to the most: σ by its logarithm."""
        process = self.declared.continuous
        if process is None:
            return (places * self.timesteps).round().long().clamp(max=self.timesteps - 1)
        first, last = process.first, process.last
        return first * (last / first) ** places if first > 0 else first + (last - first) * places

    def told(self, t: Tensor) -> Tensor:
        process = self.declared.process
        return t if process is None else process.input(t, t)[1]

    def noised(self) -> TrialBatch:
        """With timesteps spread over the schedule; without one, with a variance-preserving cosine."""
        count = len(self.images)
        places = (torch.arange(count) + torch.rand(count, generator=self.draw)) / count
        whole = (places * self.timesteps).long().clamp(max=self.timesteps - 1)
        return self._noised(places, whole if self.declared.continuous is None else self.times(places), self.draw)

    def noised_at(self, place: float) -> TrialBatch:
        """With one timestep, at a share of the way to the most noise; the same noise every time."""
        places = torch.full((len(self.images),), place)
        return self._noised(places, self.times(places), torch.Generator().manual_seed(0))

    def _noised(self, places: Tensor, t: Tensor, draw: torch.Generator) -> TrialBatch:
        x0, t = self.images, t.to(self.images.device)
        noise = torch.randn(x0.shape, generator=draw).to(x0.device)
        coefficients = self.declared.coefficients(t, x0)
        angle = per_sample(places.to(x0) * torch.pi / 2, x0)
        a, s = coefficients if coefficients is not None else (angle.cos(), angle.sin())
        target = target_of(self.declared.target(self.declared.prediction or "epsilon"), x0, noise, a, s)
        x_t, process = a * x0 + s * noise, self.declared.process
        return TrialBatch(x_t, t, noise, target, *((x_t, t) if process is None else process.input(x_t, t)))

    def answer(self, network: nn.Module, x: Tensor, t: Tensor, labels: Tensor | None) -> Tensor:
        try:
            return self.call(network, x, t, labels)
        except UsageError:
            raise
        except Exception as error:
            reason = first_line(error, 300)
            given = f"x {list(x.shape)} {x.dtype}, t {list(t.shape)} {t.dtype}"
            given += "" if labels is None else f", labels {list(labels.shape)} {labels.dtype}"
            raise UsageError(
                f"The model {type(network).__name__} cannot be called with {given} ({type(error).__name__}: {reason}). "
                "Pass call=lambda model, x, t, labels: … if it is called in another way."
            ) from error


def take_trial_steps(
    network: nn.Module, optimizer: torch.optim.Optimizer | None, trial: Trial, sampler: Callable[..., Any] | None
) -> tuple[Series, Events, dict[str, str]]:
    """Readings, events, and the probes that failed. `network` and `optimizer` are copies, which are trained."""
    named_parameters, record, events = trainable_parameters(network), MemoryRecord(), Events()
    parameters = [parameter for _, parameter in named_parameters]
    said: list[str] = []
    subject = InspectedLoop(network, optimizer, None, sampler, trial.images)
    runner = ProbeRunner(subject, trial.declared, said.append)
    monitors = Monitors(network, _levels(trial))
    observer = Observer(record, monitors, runner, flush_by_time=False)
    moved = optimizer or torch.optim.Adam(parameters, lr=RATE)
    step = 0
    hooks = OptimizerHooks(
        parameters, moved, None, before_update=lambda each: observer.before_update(step, each), safely=lambda act: act()
    )
    record.add(0, runner.at_start())
    if names := runner.names():
        events.append((0, "parameters", dict(names)))
    network.train()
    runner.attach()
    try:
        for step in range(STEPS):
            norms = _take_step(network, moved, trial, observer, hooks, step)
            if norms is not None and (bad := monitors.parts.nonfinite(norms)):
                events.append((step, "nonfinite", {"parameters": bad[:MAX_NAMES_IN_EVENT], "count": len(bad)}))
        observer.read()
    finally:
        hooks.close()
        observer.close()
    return record.series(), events, dict(runner.broken)


def _levels(trial: Trial) -> NoiseBinning | None:
    alphas, process = trial.declared.alphas, trial.declared.process
    if alphas is not None:
        return noise_binning_of_table(log_snr_of(alphas))
    return (
        None
        if process is None
        else noise_binning_of_draws(process.log_snr, trial.times(torch.linspace(0, 1, 64)).numpy())
    )


def _take_step(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    trial: Trial,
    observer: Observer,
    hooks: OptimizerHooks,
    step: int,
) -> Tensor | None:
    optimizer.zero_grad(set_to_none=True)
    noised = trial.noised()
    with torch.enable_grad():
        pred = trial.answer(network, noised.shown, noised.told, trial.labels)
        # Of another shape it has no error; its gradients are those of its size.
        apart = pred.float() - noised.target if pred.shape == noised.target.shape else pred.float()
        loss = apart.square().reshape(len(apart), -1).mean(1)
        if loss.requires_grad:
            loss.mean().backward()
    optimizer.step()
    losses, t = loss.detach(), noised.t if len(loss) == len(noised.t) else None
    observer.add_forward_pass(
        losses, noised.t, trial.images, noised.noise, noised.x_t, noised.target, pred, trial.labels
    )
    if (update := hooks.update(losses, t)) is None:
        return None
    rate = {} if hooks.lr is None else {LEARNING_RATE.name: float(hooks.lr)}
    pending = observer.after_update(step, update)
    observer.add(step, pending, {LOSS.name: float(losses.mean())} | rate)
    observer.begin_step()
    hooks.clear()
    return update.norms
