"""Faults of number formats, gradient scalers, clipping and micro-batches."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gauntlet.fault import fault
from gauntlet.loop import Loop
from gauntlet.loop_parts import LoopParts
from gauntlet.options import FOREIGN

SGD = {"optimizer": "sgd", "lr": 0.05}


@fault("precision.no-scaler", "lr.too-low", why="gradients that vanish move nothing", bases=("mixture",))
def train_small_losses_in_half(run: LoopParts) -> None:
    """Gradients pass through half precision without a scaler, and most are too small for it."""
    back = run.backward

    @torch.no_grad()
    def halved(loss: Tensor) -> None:
        with torch.enable_grad():
            back(loss * 1e-5)
        for weight in run.weights():
            if weight.grad is not None:
                weight.grad.copy_(weight.grad.half())

    run.backward = halved


@fault("clipping.before-unscale", "lr.too-low", why="what is left after the division hardly moves anything",
       bases=FOREIGN, needs={"scaler": True, **SGD})  # fmt: skip
def clip_before_unscale(run: LoopParts) -> None:
    """`unscale_` is missing before the clipping: scaled gradients are cut to the limit."""
    assert isinstance(run, Loop)

    def scaled() -> None:
        run.norms.append(float(nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)))

    run.clip = scaled


@fault("precision.scale-halving", bases=FOREIGN, needs={"scaler": True}, late=0.5)
def overflow_every_step(run: LoopParts) -> None:
    """One gradient is infinite in every step: the scaler skips them all."""
    back = run.backward

    def infinite(loss: Tensor) -> None:
        back(loss)
        gradient = run.weights()[-1].grad
        if gradient is not None:
            gradient.view(-1)[0] = float("inf")

    run.backward = infinite


@fault("precision.lost-updates", "lr.too-low", why="updates that are rounded away move nothing")
def train_in_bfloat16(run: LoopParts) -> None:
    """`model.bfloat16()`: small updates of the weights are rounded away."""
    update = run.update
    rate = run.rate
    run.rate = lambda step: 0.1 * rate(step)

    @torch.no_grad()
    def rounded() -> None:
        update()
        for weight in run.weights():
            weight.copy_(weight.bfloat16())

    run.update = rounded


@fault("precision.transient", "loss.spike", "loss.diverged", "model.nonfinite", "optimizer.not-its-update",
       why="a weight that is suddenly huge shows as a jump", begin=0.6)  # fmt: skip
@torch.no_grad()
def flip_bit(run: LoopParts) -> None:
    """One bit of one weight of the output layer flips."""
    weight = run.network.conv_out.weight.view(-1)
    weight[0] = 2.0**20 * (1 + weight[0].abs())


@fault("precision.transient", "clipping.outlier-batches", "loss.spike", "optimizer.not-its-update",
       why="one gradient that is far too large", begin=0.6, once=True)  # fmt: skip
def flip_gradient(run: LoopParts) -> None:
    """The gradients of one step are a million times too large, behind the clipping."""
    update = run.update

    def huge() -> None:
        for weight in run.weights():
            if weight.grad is not None:
                weight.grad.mul_(1e6)
        update()

    run.update = huge


@fault(
    "accumulation.sum",
    bases=FOREIGN,
    needs={"micro_batches": 4, "clip": None, "optimizer": "sgd", "lr": 0.05},
    doses=(4.0,),
)
def add_micro_batches(run: LoopParts, factor: float) -> None:
    """The losses of micro-batches are added up, not averaged."""
    back = run.backward
    run.backward = lambda loss: back(loss * factor)


@fault("accumulation.short-window", bases=("mixture",), needs={"micro_batches": 4, "clip": None, **SGD}, harms=False)
def end_epoch_with_short_window(run: LoopParts) -> None:
    """In every tenth step three of four micro-batches are missing, and the sum is still divided by four."""
    back, seen = run.backward, [0]

    def short(loss: Tensor) -> None:
        seen[0] += 1
        if run.step % 10 != 9 or seen[0] % 4 == 0:
            back(loss)

    run.backward = short
