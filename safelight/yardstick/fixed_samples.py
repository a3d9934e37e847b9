"""Samples that never change: images, noise and timesteps, the loss of an answer on them, and its skill."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from safelight.diffusion.densities import TimeQuantile, make_time_quantile
from safelight.diffusion.draws import draw_noise, draw_times
from safelight.diffusion.objective import NoisedBatch, Objective
from safelight.diffusion.process import per_sample
from safelight.diffusion.targets import target_of
from safelight.monitors.loss import BINS, LEVELS, make_noise_binning, noise_binning_of_draws
from safelight.vocabulary import (
    SKILL_AT_LEVEL,
    SKILL_EMA,
    SKILL_EXACT,
    SKILL_FLOOR,
    SKILL_HELD_EXACT,
    SKILL_HELD_OUT,
    SKILL_RAW,
)
from safelight.yardstick.denoisers import ClosedFormDenoisers
from safelight.yardstick.skill import Yardstick, skill, skill_by_level, way_to_floor

SIZE = 128  # samples at most


@dataclass(frozen=True)
class FixedSamples:
    """On the device of the objective. Our trainer and `safelight.watch` both measure skill on these."""

    objective: Objective
    x0: Tensor
    noise: Tensor
    t: Tensor
    time_quantile: TimeQuantile | None = None
    """That of the times, if the settings do not say it."""

    def __len__(self) -> int:
        return len(self.x0)

    def noised(self, rows: slice = slice(None)) -> NoisedBatch:
        """All of them, or some."""
        return self.objective.add_noise(self.x0[rows], self.noise[rows], self.t[rows])

    def losses(self, answer: Tensor, noised: NoisedBatch) -> Tensor:
        """The loss of each sample."""
        return self.objective.loss(answer, noised)[0].detach()  # of a loss that asks for gradients by itself

    @functools.cached_property
    def level(self) -> np.ndarray:
        """The noise level of each sample."""
        settings, process = self.objective.settings, self.objective.process
        time_quantile = self.time_quantile or make_time_quantile(settings, process.timesteps)
        if self.time_quantile is not None and process.timesteps is None:  # whatever t is, it may fall where noise rises
            draws = time_quantile(torch.linspace(0, 1, 4 * BINS, dtype=torch.float64)).numpy()
            return noise_binning_of_draws(process.log_snr, draws)(self.t.cpu().numpy()) // (BINS // LEVELS)
        noise_binning = make_noise_binning(process.log_snr, time_quantile, process.timesteps)
        return noise_binning(self.t.cpu().numpy()) // (BINS // LEVELS)

    def compare(self, denoisers: ClosedFormDenoisers) -> Yardstick:
        """What closed-form denoisers lose on these samples."""
        objective, noised = self.objective, self.noised()
        a, s = objective.coefficients(self.t)

        def loss(x0: Tensor, noise: Tensor) -> Tensor:
            x0, noise = x0.to(a.device, torch.float32), noise.to(a.device, torch.float32)
            wide = per_sample(a, x0), per_sample(s, x0)
            return objective.loss(target_of(objective.target_coefficients, x0, noise, *wide), noised)[0]

        return denoisers.measure(noised.x_t, a, s, loss)

    def skills(self, stick: Yardstick, raw: Tensor, ema: Tensor | None, *, has_floor: bool = True) -> dict[str, float]:
        """By signal, of the losses of samples that a model trained on; the levels are those of the EMA where there is
        one. `has_floor`: the model is given nothing that the exact denoiser does not know."""
        own, judged = _on_host(raw), _on_host(raw if ema is None else ema)
        found = {SKILL_RAW.name: skill(own, stick, self.level, LEVELS)}
        if ema is not None:
            found[SKILL_EMA.name] = skill(judged, stick, self.level, LEVELS)
        if has_floor:
            found[SKILL_FLOOR.name] = way_to_floor(own, stick)
            found[SKILL_EXACT.name] = skill(stick.exact, stick, self.level, LEVELS)
        by_level = skill_by_level(judged, stick, self.level, LEVELS)
        return _known(found | {f"{SKILL_AT_LEVEL.name}/{level:02d}": number for level, number in enumerate(by_level)})

    def held_out_skill(self, stick: Yardstick, ema: Tensor) -> dict[str, float]:
        """The same of samples that a model never trained on, beside what the training images alone are worth there: a
        model that generalises is better."""
        losses = {SKILL_HELD_OUT.name: _on_host(ema), SKILL_HELD_EXACT.name: stick.exact}
        return _known({name: skill(each, stick, self.level, LEVELS) for name, each in losses.items()})


def draw_samples(seed: int, objective: Objective, x0: Tensor, own: TimeQuantile | None = None) -> FixedSamples:
    """The same noise and times for every set of as many images; times are spread evenly over their density. `own`:
    where the settings do not say it."""
    count, density = len(x0), own or make_time_quantile(objective.settings, objective.process.timesteps)
    t = draw_times("stratified", density, seed=seed, step=0, batch_size=count)
    noise = draw_noise(seed, 0, 0, count, tuple(x0.shape[1:]))
    return FixedSamples(objective, *(each.to(objective.device) for each in (x0, noise, t)), time_quantile=own)


def _on_host(losses: Tensor) -> np.ndarray:
    return losses.double().cpu().numpy()


def _known(numbers: Mapping[str, float]) -> dict[str, float]:
    """Without those that say nothing."""
    return {name: float(number) for name, number in numbers.items() if np.isfinite(number)}
