"""What a fault may lay hands on: the pieces of a training loop, by the names they have on every base."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gauntlet.options import Base, Options

Batch = tuple[Tensor, Tensor | None]
PIECES = (
    "begin",
    "rate",
    "draw_batch",
    "drop_labels",
    "draw_t",
    "draw_noise",
    "add_noise",
    "target_of",
    "call_model",
    "loss_of",
    "backward",
    "clip",
    "update",
    "zero_grad",
    "average",
    "sample",
)


class LoopParts(Protocol):
    """A built run before its first step. A fault replaces pieces, or operates on the objects behind them."""

    base: Base
    options: Options
    seed: int
    step: int
    model: nn.Module
    optimizer: torch.optim.Optimizer
    ema: Any
    scaler: Any
    images: Tensor
    labels: Tensor | None
    null: int | None

    begin: Callable[[], None]
    rate: Callable[[int], float]
    draw_batch: Callable[[], Batch]
    drop_labels: Callable[[Tensor], Tensor]
    draw_t: Callable[[Tensor], Tensor]
    draw_noise: Callable[[Tensor], Tensor]
    add_noise: Callable[[Tensor, Tensor, Tensor], Tensor]
    target_of: Callable[[Tensor, Tensor, Tensor], Tensor]
    call_model: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    loss_of: Callable[[Tensor, Tensor, Tensor], Tensor]
    backward: Callable[[Tensor], None]
    clip: Callable[[], None]
    update: Callable[[], None]
    zero_grad: Callable[[], None]
    average: Callable[[], None]
    sample: Callable[[nn.Module, Tensor], Tensor]

    @property
    def table(self) -> Tensor:
        """alphas_cumprod, as the loop declares it."""
        ...

    @property
    def network(self) -> Any:
        """The denoiser without what is wrapped around it; its organs have diffusers' names on every base."""
        ...

    def shadows(self) -> list[Tensor]:
        """The averaged weights, in the order of `weights`."""
        ...

    def weights(self) -> list[nn.Parameter]: ...

    def declare(self, table: Tensor) -> None:
        """Another table, in the very object that the watch is given."""
        ...


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """[batch] to [batch, 1, …]: the shape that scales whole samples."""
    return values.view(-1, *[1] * (like.dim() - 1)).to(like.dtype if like.is_floating_point() else torch.float32)


def noised(table: Tensor, x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
    """x_t by the formula of a table of alphas_cumprod."""
    kept = per_sample(table[t].float(), noise)
    return kept.sqrt() * x0 + (1 - kept).sqrt() * noise


def target(prediction: str, table: Tensor, x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
    """What a perfect model would answer."""
    if prediction == "epsilon":
        return noise
    if prediction == "sample":
        return x0
    kept = per_sample(table[t].float(), noise)
    return kept.sqrt() * noise - (1 - kept).sqrt() * x0
