"""Gaussian processes: x_t = a(t)·x0 + s(t)·ε, and what a network is shown of x_t and t; all of it in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

SIGMA_DATA = 0.5  # deviation of the images, as EDM assumes it
LOWEST_SIGMA, HIGHEST_SIGMA = 0.002, 80.0  # of EDM
TIME_INPUT_SCALE = 1000.0  # a network is told 1000·t where t goes from 0 to 1, as SD3, Flux and diffusers do it

TimeFunction = Callable[[Tensor], Tensor]
"""A function of times, one number for each: float64 from float64; from integers where time is discrete."""


def precise(values: Tensor) -> Tensor:
    """In float64, where the device has it."""
    return values.float() if values.device.type == "mps" else values.double()


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """[batch] -> [batch, 1, 1, 1]: the shape that scales whole images."""
    return values.view(-1, *[1] * (like.dim() - 1))


@dataclass(frozen=True, slots=True)
class Process:
    """Two functions of time. The noise grows with t."""

    signal_scale: TimeFunction
    """a(t)."""
    noise_scale: TimeFunction
    """s(t)."""
    table: tuple[Tensor, Tensor] | None = None
    """Discrete time: a and s of every timestep, of which t is the place. None: t is any number from `first` to
    `last`."""
    first: float = 0.0
    last: float = 1.0
    c_in: TimeFunction | None = None
    """The network sees c_in(t)·x_t; None: x_t."""
    c_noise: TimeFunction | None = None
    """The network is told c_noise(t); None: t."""
    time_from_c_noise: TimeFunction | None = None
    """t from c_noise(t); None: t itself."""

    @property
    def timesteps(self) -> int | None:
        """The number of timesteps; None in continuous time."""
        return None if self.table is None else len(self.table[0])

    def at(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """(a, s), one of each for every time."""
        t = t if self.table is not None else precise(t)
        return self.signal_scale(t), self.noise_scale(t)

    def log_snr(self, t: Tensor) -> Tensor:
        """The noise level: log(a² / s²). Finite where there is no signal, or no noise."""
        a, s = self.at(t)
        return 2 * (a.clamp(min=1e-6).log() - s.clamp(min=1e-6).log())

    def input(self, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """What the network is called with: x_t and t as they are, where the process scales neither."""
        shown = x_t
        if self.c_in is not None:
            factor = self.c_in(precise(t)).to(x_t.dtype)
            shown = per_sample(factor, x_t) * x_t
        return shown, t if self.c_noise is None else self.c_noise(precise(t)).float()

    def seen(self, shown: Tensor, told: Tensor) -> tuple[Tensor, Tensor]:
        """(x_t, t) from what the network is called with: the inverse of `input`, in float64."""
        told = precise(told.reshape(-1)).expand(len(shown))
        t = told if self.time_from_c_noise is None else self.time_from_c_noise(told)
        if self.table is not None:
            t = t.round().long().clamp(0, len(self.table[0]) - 1)
        x_t = precise(shown)
        if self.c_in is not None:
            x_t = x_t / per_sample(self.c_in(t), shown)
        return x_t, t


def vp(alphas_cumprod: Tensor) -> Process:
    """Variance preserving, from a table: a² = ᾱ and a² + s² = 1 (Ho et al. 2020)."""
    a, s = alphas_cumprod.sqrt(), (1 - alphas_cumprod).sqrt()
    return Process(_entries(a), _entries(s), table=(a, s), last=len(a) - 1)


def _entries(table: Tensor) -> TimeFunction:
    return lambda t: table.to(t.device, torch.float32 if t.device.type == "mps" else torch.float64)[t]


def linear_flow(shift: float = 1.0) -> Process:
    """Straight from image to noise (Liu et al. 2023, Lipman et al. 2023). A `shift` above 1 moves all times to more
    noise (Esser et al. 2024)."""

    def noise(t: Tensor) -> Tensor:
        return shifted(t, shift)

    return Process(
        lambda t: 1 - noise(t),
        noise,
        c_noise=lambda t: TIME_INPUT_SCALE * noise(t),
        time_from_c_noise=lambda told: shifted(told / TIME_INPUT_SCALE, 1 / shift),
    )


def shifted(t: Tensor, shift: float) -> Tensor:
    """Times of a flow, moved to more noise: log-SNR falls by 2·log(shift) everywhere."""
    return t if shift == 1 else shift * t / (1 + (shift - 1) * t)


def resolution_shift(pixels: int, reference: int) -> float:
    """The shift that makes `pixels` as noisy as `reference` pixels are without one: more pixels of one picture hide
    more noise (SD3, Esser et al. 2024, eq. 23)."""
    return math.sqrt(pixels / reference)


def token_shift(tokens: int) -> float:
    """The shift of Flux: its logarithm grows in a straight line from 0.5 at 256 tokens to 1.15 at 4,096."""
    return math.exp(0.5 + (1.15 - 0.5) * (tokens - 256) / (4096 - 256))


def cosine_flow() -> Process:
    """A quarter of a circle: variance preserving, in continuous time (Albergo & Vanden-Eijnden 2023)."""
    return Process(
        lambda t: torch.cos(t * math.pi / 2),
        lambda t: torch.sin(t * math.pi / 2),
        c_noise=lambda t: TIME_INPUT_SCALE * t,
        time_from_c_noise=lambda told: told / TIME_INPUT_SCALE,
    )


def edm(sigma_data: float = SIGMA_DATA, lowest: float = LOWEST_SIGMA, highest: float = HIGHEST_SIGMA) -> Process:
    """Variance exploding: x_t = x0 + σ·ε, and t is σ. What the network sees has variance 1 (Karras et al. 2022)."""
    return Process(
        torch.ones_like,
        lambda t: t,
        first=lowest,
        last=highest,
        c_in=lambda t: (t.square() + sigma_data**2).rsqrt(),
        c_noise=lambda t: t.log() / 4,
        time_from_c_noise=lambda told: (4 * told).exp(),
    )
