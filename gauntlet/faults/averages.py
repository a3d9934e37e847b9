"""Faults of the averaged weights, and of the mode in which models train and sample."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gauntlet.fault import fault
from gauntlet.loop_parts import LoopParts
from gauntlet.options import BASES, FOREIGN


@torch.no_grad()
def follow(run: LoopParts, keep: float, take: float) -> None:
    for shadow, weight in zip(run.shadows(), run.weights(), strict=True):
        shadow.mul_(keep).add_(weight.detach(), alpha=take)


@fault("ema.too-long", doses=(0.9999, 0.99999))
def average_too_long(run: LoopParts, decay: float) -> None:
    """A decay for a million steps, without a ramp, in a run of a few hundred."""
    run.average = lambda: follow(run, decay, 1 - decay)


@fault("ema.frozen", late=0.5)
def never_average(run: LoopParts) -> None:
    """The average is made, and never updated."""
    run.average = lambda: None


@fault("ema.frozen", "ema.not-an-average", why="half of it is no average of anything")
def average_half(run: LoopParts) -> None:
    """Half of the layers were registered after the average was made."""

    @torch.no_grad()
    def half() -> None:
        for number, (shadow, weight) in enumerate(zip(run.shadows(), run.weights(), strict=True)):
            if number % 2:
                shadow.lerp_(weight.detach(), 0.05)

    run.average = half


@fault("ema.low-precision", "ema.frozen", why="updates that are all rounded away leave it where it was")
def average_in_bfloat16(run: LoopParts) -> None:
    """The average is kept in bfloat16, where small updates are rounded away."""

    @torch.no_grad()
    def rounded() -> None:
        for shadow, weight in zip(run.shadows(), run.weights(), strict=True):
            shadow.copy_(shadow.bfloat16().lerp(weight.detach().bfloat16(), 0.002))

    run.average = rounded


@fault("ema.every-micro-batch", bases=FOREIGN, needs={"micro_batches": 4, "ema": 0.99}, harms=False)
def average_every_micro_batch(run: LoopParts) -> None:
    """The average is updated with every micro-batch."""
    back, average = run.backward, run.average

    def averaged(loss: Tensor) -> None:
        back(loss)
        average()

    run.backward = averaged


@fault("ema.not-an-average", doses=(1.01, 0.98))
def average_to_other_sum(run: LoopParts, total: float) -> None:
    """The two weights of the average do not add up to one."""
    run.average = lambda: follow(run, 0.95, total - 0.95)


@fault("ema.not-an-average", "ema.frozen", why="it follows something else than the model")
def average_gradients(run: LoopParts) -> None:
    """The average is updated with the gradients."""

    @torch.no_grad()
    def wrong() -> None:
        for shadow, weight in zip(run.shadows(), run.weights(), strict=True):
            if weight.grad is not None:
                shadow.lerp_(weight.grad, 0.05)

    run.average = wrong


@fault("ema.not-sampled", bases=("own",), harms=False)
def sample_raw_weights(run: LoopParts) -> None:
    """Pictures are drawn with the raw weights."""
    import safelight.training.previews as stages

    generate = stages.generate
    stages.generate = lambda model, config, request, **how: generate(model, config, request, **how | {"weights": None})


@fault("mode.eval-in-training", needs={"dropout": 0.1}, bases=BASES, harms=False)
def stay_in_eval(run: LoopParts) -> None:
    """`model.eval()` for a look at samples, and never back."""
    run.model.eval()


@fault("mode.train-in-sampling", needs={"dropout": 0.4}, bases=FOREIGN)
def sample_in_train(run: LoopParts) -> None:
    """Samples are drawn with dropout on."""
    draw = run.sample

    def lively(model: nn.Module, noise: Tensor) -> Tensor:
        if isinstance(model, nn.Module):
            model.train()
        return draw(model, noise)

    run.sample = lively
