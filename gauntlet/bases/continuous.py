"""Bases `flow` and `edm`: digits of 8 px and a small network in continuous time, with a sampler of its own; seconds."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gauntlet.bases.mixture import WIDTH, Average, Block, Sinusoid
from gauntlet.bases.plain import CLASSES, digits
from gauntlet.hyperparameters import make_optimizer
from gauntlet.loop import Loop
from gauntlet.loop_parts import per_sample
from gauntlet.options import Options

PIXELS, SIGMA_DATA = 64, 0.5
LOWEST, HIGHEST = 0.002, 80.0
STEPS = 24


class Denoiser(nn.Module):
    """Images as vectors; its organs are named as in diffusers' U-Net."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.conv_in = nn.Linear(PIXELS, WIDTH)
        self.time_proj = Sinusoid()
        self.time_embedding = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.class_embedding = nn.Embedding(CLASSES + 1, WIDTH) if options.conditional else None
        self.blocks = nn.ModuleList([Block(options.dropout) for _ in range(2)])
        self.conv_norm_out, self.conv_out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, PIXELS)
        nn.init.zeros_(self.conv_out.weight)
        nn.init.zeros_(self.conv_out.bias)

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        embedding = self.time_embedding(self.time_proj(t))
        if self.class_embedding is not None:
            nothing = torch.full((len(x),), CLASSES)
            embedding = embedding + self.class_embedding(nothing if labels is None else labels)
        h = self.conv_in(x.flatten(1))
        for block in self.blocks:
            h = block(h, embedding)
        return self.conv_out(functional.silu(self.conv_norm_out(h))).view_as(x)


@dataclass(frozen=True)
class Formulas:
    """Of a process: what its time means, what is noised, asked for, shown and told. A fault replaces one."""

    noise_at: Callable[[Tensor], Tensor]
    """s of a flow, σ of EDM."""
    time_at: Callable[[Tensor], Tensor]
    told: Callable[[Tensor], Tensor]
    """Of s or σ."""
    signal: Callable[[Tensor], Tensor]
    scale: Callable[[Tensor], Tensor]
    """c_in, of s or σ."""
    target: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    """Of x0, noise, a and s."""
    velocity: Callable[[Tensor, Tensor, Tensor], Tensor]
    """dx_t / ds, from an answer at x_t and s."""


def formulas_of(options: Options) -> Formulas:
    if options.family == "flow":
        return _flow(options)

    def scale(sigma: Tensor) -> Tensor:
        return (sigma.square() + SIGMA_DATA**2).rsqrt() if options.family == "edm" else torch.ones_like(sigma)

    def target(x0: Tensor, noise: Tensor, a: Tensor, s: Tensor) -> Tensor:
        if options.prediction == "epsilon":
            return noise
        length = (s.square() + SIGMA_DATA**2).sqrt()
        return (x0 - SIGMA_DATA**2 / length.square() * (x0 + s * noise)) / (s * SIGMA_DATA / length)

    def velocity(answer: Tensor, x: Tensor, s: Tensor) -> Tensor:
        if options.prediction == "epsilon":
            return answer
        length = (s.square() + SIGMA_DATA**2).sqrt()
        clean = SIGMA_DATA**2 / length.square() * x + s * SIGMA_DATA / length * answer
        return (x - clean) / s

    told: Callable[[Tensor], Tensor] = (lambda s: s.log() / 4) if options.clock != "sigma" else (lambda s: s)
    return Formulas(lambda t: t, lambda s: s, told, torch.ones_like, scale, target, velocity)


def _flow(options: Options) -> Formulas:
    factor = 1.0 if options.clock in ("t", "1 - t") else 1000.0
    falls = options.clock == "1 - t"

    def turned(s: Tensor) -> Tensor:
        return factor * ((1 - s) if falls else s)

    def target(x0: Tensor, noise: Tensor, a: Tensor, s: Tensor) -> Tensor:
        found = {"flow": noise - x0, "sample": x0, "v_prediction": a * noise - s * x0}
        return x0 - noise if options.prediction == "reverse_flow" else found[options.prediction]

    def velocity(answer: Tensor, x: Tensor, s: Tensor) -> Tensor:
        if options.prediction in ("flow", "reverse_flow"):
            return answer if options.prediction == "flow" else -answer
        if options.prediction == "sample":
            return (x - answer) / s
        a = 1 - s
        return (a * answer + s * x - a * x + s * answer) / (a * a + s * s)

    told = turned if options.clock != "t" else (lambda s: s)

    def noise_at(t: Tensor) -> Tensor:
        return 1 - t / factor if falls else t / factor

    return Formulas(noise_at, turned, told, lambda s: 1 - s, torch.ones_like, target, velocity)


class Continuous(Loop):
    """The loop of both bases."""

    formulas: Formulas

    @property
    def table(self) -> Tensor:
        """There is none; what stands for it is never used."""
        return torch.linspace(0.999, 0.001, 10)

    def draw_t(self, x0: Tensor) -> Tensor:
        options, count = self.options, len(x0)
        if options.family != "flow":
            mean, std = (-1.2, 1.2) if options.density != "high" else (1.0, 1.6)
            return (mean + std * torch.randn(count)).exp().clamp(LOWEST, HIGHEST)
        u = torch.rand(count) if options.density in ("uniform", "high", "low") else torch.sigmoid(torch.randn(count))
        if options.density == "shift 3":
            u = 3 * u / (1 + 2 * u)
        if options.density in ("high", "low"):  # one of two experts
            u = 0.5 + u / 2 if options.density == "high" else u / 2
        return self.formulas.time_at(u)

    def coefficients(self, t: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        s = self.formulas.noise_at(t)
        return per_sample(self.formulas.signal(s), like), per_sample(s, like)

    def add_noise(self, x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        a, s = self.coefficients(t, x0)
        return a * x0 + s * noise

    def target_of(self, x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        if self.options.denoised:
            return x0
        return self.formulas.target(x0, noise, *self.coefficients(t, x0))

    def call_model(self, x_t: Tensor, t: Tensor, labels: Tensor | None) -> Tensor:
        s = self.formulas.noise_at(t)
        answer = super().call_model(per_sample(self.formulas.scale(s), x_t) * x_t, self.formulas.told(s), labels)
        if not self.options.denoised:
            return answer
        s = per_sample(s, x_t)
        length = (s.square() + SIGMA_DATA**2).sqrt()
        return SIGMA_DATA**2 / length.square() * x_t + s * SIGMA_DATA / length * answer

    def loss_of(self, pred: Tensor, target: Tensor, t: Tensor) -> Tensor:
        each = (pred - target).square().flatten(1).mean(1)
        if self.options.denoised:
            each = each * (t.square() + SIGMA_DATA**2) / (t * SIGMA_DATA).square()
        if self.options.weighting == "min-snr":
            s = self.formulas.noise_at(t)
            snr = (self.formulas.signal(s) / s.clamp(min=1e-3)).square()
            each = each * snr.clamp(max=5.0) / (snr + 1)
        return each if self.options.told == "per sample" else each.mean()


@dataclass(frozen=True, kw_only=True)
class Way:
    """How a sampler goes; the defaults are right."""

    start: float = 1.0
    """Of the most noise."""
    last_noise: float = 0.0
    first: float = 1.0
    """Of the size of the first noise."""
    answer: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda answer, x, s: answer
    told: Callable[[Tensor], Tensor] | None = None
    scale: Callable[[Tensor], Tensor] | None = None
    bound: float | None = None
    steps: int = STEPS
    gradients: bool = False


def walk(loop: Loop, model: nn.Module, noise: Tensor, way: Way | None = None) -> Tensor:
    """Euler's or Heun's way from the most noise to none."""
    assert isinstance(loop, Continuous)
    way, formulas, options = way or Way(), loop.formulas, loop.options
    if options.family == "flow":
        places = torch.linspace(way.start, 0, STEPS + 1)
        x = noise * way.first
    else:
        ends = (way.start * HIGHEST) ** (1 / 7), LOWEST ** (1 / 7)
        places = torch.cat([torch.linspace(*ends, STEPS) ** 7, torch.zeros(1)])
        x = noise * places[0] / way.start * way.first
    told, scale = way.told or formulas.told, way.scale or formulas.scale

    def slope(x: Tensor, s: Tensor) -> Tensor:
        s = s.expand(len(x))
        found: Any = model(per_sample(scale(s), x) * x, told(s))
        wide = per_sample(s, x)
        answer = way.answer(getattr(found, "sample", found), x, wide)
        if way.bound is None:
            return formulas.velocity(answer, x, wide)
        clean = (x - wide * formulas.velocity(answer, x, wide)).clamp(-way.bound, way.bound)
        return (x - clean) / wide

    with torch.set_grad_enabled(way.gradients):
        for now, after in itertools.pairwise(places[: way.steps + 1]):
            first = slope(x, now)
            guess = x + (after - now) * first
            second = slope(guess, after) if options.solver == "heun" and after > 0 else first
            x = x + (after - now) * (first + second) / 2
    return x + way.last_noise * torch.randn_like(x) if way.last_noise else x


def declaration(options: Options) -> Any:
    """What the watch is told of the process."""
    from diffusers import EDMEulerScheduler, FlowMatchEulerDiscreteScheduler

    if options.clock == "1 - t":  # from noise to image
        return (lambda t: t, lambda t: 1 - t)
    if options.family == "flow":
        return FlowMatchEulerDiscreteScheduler()
    return EDMEulerScheduler(sigma_data=SIGMA_DATA) if options.family == "edm" else (torch.ones_like, lambda t: t)


def build_continuous(options: Options, seed: int, *, base: Any) -> Continuous:
    torch.manual_seed(seed)
    model = Denoiser(options)
    images, labels = digits()
    loop = Continuous(
        base,
        options,
        seed,
        model=model,
        optimizer=make_optimizer(options, list(model.parameters())),
        ema=None if options.ema is None else Average(model, options.ema),
        schedule=declaration(options),
        data=(images[: options.count].clone(), labels[: options.count].clone()),
        held=(images[1500:], labels[1500:]),
        null=CLASSES,
        sampler=walk,
    )
    loop.formulas = formulas_of(options)
    return loop


build_flow = functools.partial(build_continuous, base="flow")
build_edm = functools.partial(build_continuous, base="edm")
