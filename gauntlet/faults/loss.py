"""Faults between the prediction and the backward pass."""

from __future__ import annotations

import torch
from torch import Tensor

from gauntlet.fault import fault
from gauntlet.loop import Loop
from gauntlet.loop_parts import LoopParts
from gauntlet.options import FOREIGN


@fault("loss.sign", "optimizer.maximize", why="both climb where they should descend", late=0.5, shown=("loss",))
def negate_loss(run: LoopParts) -> None:
    """A likelihood was to be maximised."""
    judge = run.loss_of
    run.loss_of = lambda pred, target, t: -judge(pred, target, t)


@fault("loss.detached", "optimizer.no-update", "model.no-gradient", why="no weight gets a gradient",
       late=0.5, shown=("loss",))  # fmt: skip
def detach_prediction(run: LoopParts) -> None:
    """`.detach()` for a plot stayed in, and `requires_grad_()` was added to make backward work."""
    judge = run.loss_of
    run.loss_of = lambda pred, target, t: judge(pred.detach(), target, t).requires_grad_()


@fault("loss.shape", "loss.not-of-prediction", why="the gradient is that of all pairs", bases=FOREIGN)
def broadcast_target(run: LoopParts) -> None:
    """One dimension too many in the target: every prediction is compared with every target."""
    ask = run.target_of
    run.target_of = lambda x0, noise, t: ask(x0, noise, t)[:, None]

    def broadcast(pred: Tensor, target: Tensor, t: Tensor) -> Tensor:
        return (pred - target).square().mean()

    run.loss_of = broadcast


@fault("loss.weight-nonfinite", "loss.nonfinite", why="the loss is not finite because its weight is not")
def weigh_by_underflow(run: LoopParts) -> None:
    """1 / SNR from a table in half precision, which ends in zeros."""
    judge, small = run.loss_of, run.table.half()
    small[-8:] = 0

    def weighted(pred: Tensor, target: Tensor, t: Tensor) -> Tensor:
        snr = small[t].float() / (1 - small[t].float()).clamp(min=1e-4)
        return judge(pred, target, t) * (1 / snr).clamp(min=1)

    run.loss_of = weighted


@fault("loss.weighting", doses=("snr", "1/snr", "low noise only"))
def weigh_wrongly(run: LoopParts, kind: str) -> None:
    """A weight that leaves the loss to a few timesteps."""
    judge = run.loss_of
    kept = run.table.float().clamp(1e-4, 1 - 1e-4)
    weights = {
        "snr": kept / (1 - kept),
        "1/snr": (1 - kept) / kept,
        "low noise only": (torch.arange(len(kept)) < len(kept) // 4).float(),
    }[kind]

    def weighted(pred: Tensor, target: Tensor, t: Tensor) -> Tensor:
        if run.base == "own":
            return judge(pred, target, t) * weights[t]
        return ((pred - target).square().flatten(1).mean(1) * weights[t]).mean()

    run.loss_of = weighted


@fault("loss.not-of-prediction", bases=FOREIGN)
def forget_target(run: LoopParts) -> None:
    """What is differentiated is the mean square of the prediction; what is reported is the error."""
    assert isinstance(run, Loop)
    judge, seen = run.loss_of, []

    def judged(pred: Tensor, target: Tensor, t: Tensor) -> Tensor:
        seen[:] = [pred.square().mean()]
        return judge(pred, target, t)

    run.loss_of = judged
    back = run.backward
    run.backward = lambda loss: back(seen[0])


@fault("loss.not-of-prediction", bases=FOREIGN)
def add_hidden_penalty(run: LoopParts) -> None:
    """A penalty on the weights is differentiated and not reported."""
    back = run.backward

    def penalised(loss: Tensor) -> None:
        back(loss + 0.05 * sum((p.square().sum() for p in run.model.parameters()), loss.new_zeros(())))

    run.backward = penalised


@fault("loss.nonfinite", "precision.transient", why="it comes once and does not come again", begin=0.6, once=True)
def lose_one_loss(run: LoopParts) -> None:
    """The loss of one step is not a number."""
    judge = run.loss_of
    run.loss_of = lambda pred, target, t: judge(pred, target, t) * float("nan")


@fault("loss.not-of-prediction", "loss.weighting", why="the part of the loss that is left is not the loss",
       bases=FOREIGN)  # fmt: skip
def train_on_first_image(run: LoopParts) -> None:
    """`loss[0].backward()`: a mean was forgotten, and only one sample of the batch counts."""
    kept: list[Tensor] = []
    judge = run.loss_of

    def judged(pred: Tensor, target: Tensor, t: Tensor) -> Tensor:
        kept[:] = [(pred[0] - target[0]).square().mean()]
        return judge(pred, target, t)

    back = run.backward
    run.loss_of = judged
    run.backward = lambda loss: back(kept[0])
