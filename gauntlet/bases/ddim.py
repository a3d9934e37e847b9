"""A hand-written DDIM sampler, with every place in it where people slip."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

STEPS = 20


@dataclass(frozen=True, kw_only=True)
class Way:
    """How it is done; the defaults are right."""

    start: int | None = None
    """Timestep of the pure noise; unset: the last."""
    bound: float | None = 1.0
    """Largest value of a clean sample."""
    last_noise: float = 0.0
    first_sigma: float = 1.0
    told_t: Callable[[int], int] = int
    """What the model is told of a timestep."""
    rooted: bool = True
    """Whether the noise is scaled by √(1 − ᾱ), or by 1 − ᾱ."""
    gradients: bool = False


def ddim(
    model: Callable[[Tensor, Tensor], object], noise: Tensor, table: Tensor, prediction: str, way: Way | None = None
) -> Tensor:
    way = way or Way()
    with torch.set_grad_enabled(way.gradients):
        return _walk(model, noise, table, prediction, way)


def _walk(model: Callable[[Tensor, Tensor], object], noise: Tensor, table: Tensor, prediction: str, way: Way) -> Tensor:
    start = len(table) - 1 if way.start is None else way.start
    times = [round(start * (1 - i / STEPS)) for i in range(STEPS)]
    x = noise * way.first_sigma
    for now, after in zip(times, [*times[1:], None], strict=True):
        answer = model(x, torch.full((len(x),), way.told_t(now), device=x.device))
        answer = getattr(answer, "sample", answer)
        assert isinstance(answer, Tensor)
        a, s = table[now].sqrt(), (1 - table[now]).sqrt() if way.rooted else 1 - table[now]
        clean = {"epsilon": (x - s * answer) / a, "sample": answer, "v_prediction": a * x - s * answer}[prediction]
        clean = clean if way.bound is None else clean.clamp(-way.bound, way.bound)
        rest = (x - a * clean) / s
        kept = table.new_ones(()) if after is None else table[after]
        x = kept.sqrt() * clean + (1 - kept).sqrt() * rest
    return x + way.last_noise * torch.randn_like(x) if way.last_noise else x
