"""Faults that only flow matching and EDM can have: the ends, the formula, the shift, c_in, c_noise, sigma_data."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gauntlet.bases.continuous import Continuous, Way, formulas_of, walk
from gauntlet.fault import fault
from gauntlet.loop_parts import LoopParts, per_sample
from gauntlet.options import CONTINUOUS

FORMULA = "another schedule and another formula cannot always be told apart"


def _changed(run: LoopParts) -> Continuous:
    assert isinstance(run, Continuous)
    return run


@fault("target.other-type", bases=("flow",), undeclared=("target.not-a-velocity",))
def ask_for_noise_alone(run: LoopParts) -> None:
    """The noise is the target, as in DDPM, and the sampler integrates a velocity."""
    run.target_of = lambda x0, noise, t: noise


@fault("target.wrong", "target.fresh-noise", why="it is half of a velocity", bases=("flow",),
       undeclared=("target.other-noise",))  # fmt: skip
def ask_for_fresh_velocity(run: LoopParts) -> None:
    """The velocity is computed with noise that is drawn again."""
    run.target_of = lambda x0, noise, t: torch.randn_like(noise) - x0


@fault("forward.other-schedule", "forward.not-the-formula", "timesteps.shuffled", why=FORMULA, bases=("flow",),
       undeclared=("target.against-time",))  # fmt: skip
def swap_ends(run: LoopParts) -> None:
    """t·x0 + (1 − t)·noise, with the target and the sampler of the other direction."""
    loop = _changed(run)

    def swapped(x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        a, s = loop.coefficients(t, x0)
        return s * x0 + a * noise

    run.add_noise = swapped


@fault("forward.other-schedule", "forward.not-the-formula", why=FORMULA, bases=("flow",),
       undeclared=("target.of-another-process",))  # fmt: skip
def noise_by_ddpm(run: LoopParts) -> None:
    """√(1 − t²)·x0 + t·noise: variance preserving, under a flow's target."""
    loop = _changed(run)

    def noised(x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        s = per_sample(loop.formulas.noise_at(t), x0)
        return (1 - s * s).sqrt() * x0 + s * noise

    run.add_noise = noised


@fault("forward.other-schedule", "sampler.other-times", why="the shift is in x_t and in nothing that is told",
       bases=("flow",), doses=(3.0, 6.0))  # fmt: skip
def shift_noise_only(run: LoopParts, shift: float) -> None:
    """x_t is made with shifted times, and the network is told those before the shift."""
    add, loop = run.add_noise, _changed(run)

    def shifted(x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        s = loop.formulas.noise_at(t)
        return add(x0, noise, loop.formulas.time_at(shift * s / (1 + (shift - 1) * s)))

    run.add_noise = shifted


@fault("timesteps.scaled", "sampler.other-times", why="the sampler tells it once", bases=("flow",))
def scale_time_twice(run: LoopParts) -> None:
    """Loop and model both multiply the time by 1,000."""
    loop = _changed(run)
    told = loop.formulas.told
    usual = loop.formulas
    loop.formulas = replace(usual, told=lambda s: 1000 * told(s))
    _sample_as_before(loop)


@fault("timesteps.not-passed-on", bases=("flow",), undeclared=("target.against-time", "sampler.other-times"))
def tell_opposite_time(run: LoopParts) -> None:
    """The network is told 1 − t in training, and t in sampling."""
    loop = _changed(run)
    usual = loop.formulas
    loop.formulas = replace(usual, told=lambda s: usual.told(1 - s))
    _sample_as_before(loop)


@fault("timesteps.constant", bases=CONTINUOUS)
def hold_time(run: LoopParts) -> None:
    """The time was fixed while debugging."""
    loop = _changed(run)
    run.draw_t = lambda x0: loop.formulas.time_at(torch.full((len(x0),), 0.5))


@fault("forward.input-not-scaled", bases=("edm",))
def forget_input_scale(run: LoopParts) -> None:
    """The network is shown x_t without c_in, and the sampler scales."""
    loop = _changed(run)
    usual = loop.formulas
    loop.formulas = replace(usual, scale=torch.ones_like)
    _sample_as_before(loop)


@fault("target.wrong", "target.other-sigma-data", why="a target of another sigma_data is another target",
       bases=("edm",), doses=(1.0, 2.0))  # fmt: skip
def ask_by_other_sigma_data(run: LoopParts, sigma_data: float) -> None:
    """c_skip and c_out are computed with another sigma_data than c_in."""

    def target(x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        s = per_sample(t, x0)
        length = (s.square() + sigma_data**2).sqrt()
        return (x0 - sigma_data**2 / length.square() * (x0 + s * noise)) / (s * sigma_data / length)

    run.target_of = target


@fault("sampler.other-times", bases=("edm",), doses=("log sigma", "sigma"))
def tell_other_noise(run: LoopParts, kind: str) -> None:
    """c_noise is log σ or σ in training, and log σ / 4 in sampling."""
    loop = _changed(run)
    usual = loop.formulas
    loop.formulas = replace(usual, told={"log sigma": torch.log, "sigma": lambda s: s}[kind])
    _sample_as_before(loop)


@fault("timesteps.density-swapped", bases=("edm",))
def swap_density(run: LoopParts) -> None:
    """P_mean and P_std have changed places."""
    run.draw_t = lambda x0: (1.2 - 1.2 * torch.randn(len(x0))).exp().clamp(0.002, 80.0)


@fault("loss.weighting", bases=CONTINUOUS, doses=("snr", "1/snr"))
def weigh_by_ratio(run: LoopParts, kind: str) -> None:
    """A weight that leaves the loss to a few noise levels."""
    loop = _changed(run)

    def weighted(pred: Tensor, target: Tensor, t: Tensor) -> Tensor:
        s = loop.formulas.noise_at(t)
        ratio = (loop.formulas.signal(s) / s.clamp(min=1e-3)).square().clamp(1e-4, 1e4)
        return ((pred - target).square().flatten(1).mean(1) * (ratio if kind == "snr" else 1 / ratio)).mean()

    run.loss_of = weighted


@fault("loss.weighting", bases=("edm",), needs={"denoised": True})
def forget_weights(run: LoopParts) -> None:
    """The error of the denoised image is not divided by c_out²."""
    run.loss_of = lambda pred, target, t: (pred - target).square().mean()


def _sample_as_before(loop: Continuous) -> None:
    """The sampler keeps the formulas that training has lost."""
    before = formulas_of(loop.options)
    loop.sample = lambda model, noise: walk(loop, model, noise, Way(told=before.told, scale=before.scale))
