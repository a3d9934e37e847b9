"""Faults of the update: which gradients, which weights, which sign."""

from __future__ import annotations

import copy

import torch

from gauntlet.fault import fault
from gauntlet.loop_parts import LoopParts


@fault("optimizer.no-update", late=0.5, shown=("loss",))
def never_step(run: LoopParts) -> None:
    """`optimizer.step()` is missing."""
    run.update = lambda: None


@fault("optimizer.no-update", "lr.zero", why="the optimizer is called and nothing moves")
def step_in_vain(run: LoopParts) -> None:
    """Weights are loaded back from a copy after every update."""
    update = run.update

    def undone() -> None:
        kept = [weight.detach().clone() for weight in run.weights()]
        update()
        with torch.no_grad():
            for weight, before in zip(run.weights(), kept, strict=True):
                weight.copy_(before)

    run.update = undone


@fault("optimizer.no-zero-grad", late=0.5, shown=("loss",))
def never_zero(run: LoopParts) -> None:
    """`optimizer.zero_grad()` is missing."""
    run.zero_grad = lambda: None


@fault("optimizer.zeroed-gradients", "optimizer.no-update", why="the optimizer moves nothing, for it is given zeros")
def zero_before_step(run: LoopParts) -> None:
    """`zero_grad` stands between backward and step."""
    update = run.update

    def emptied() -> None:
        for weight in run.weights():
            if weight.grad is not None:
                weight.grad.zero_()
        update()

    run.update = emptied


@fault("optimizer.maximize", "loss.sign", why="both climb where they should descend", late=0.5)
def maximize(run: LoopParts) -> None:
    """The optimizer was made with `maximize=True`."""
    for group in run.optimizer.param_groups:
        group["maximize"] = True


@fault("optimizer.other-parameters", "optimizer.no-update", why="the weights in use are not updated")
def optimise_a_copy(run: LoopParts) -> None:
    """The optimizer has the weights of a copy: the model was moved or copied after it was made."""
    twins = {
        id(old): new for old, new in zip(run.model.parameters(), copy.deepcopy(run.model).parameters(), strict=True)
    }
    for group in run.optimizer.param_groups:
        group["params"] = [twins[id(weight)] for weight in group["params"]]


@fault("optimizer.missing-parameters", "model.frozen", why="what is not in the optimizer stands still")
def leave_out_half(run: LoopParts) -> None:
    """The list of weights was filtered by a name that half of them do not have."""
    for group in run.optimizer.param_groups:
        group["params"] = group["params"][::2]


@fault("optimizer.weight-decay", doses=(10.0, 100.0), late=0.5)
def decay_heavily(run: LoopParts, decay: float) -> None:
    """A weight decay that outweighs the gradient."""
    for group in run.optimizer.param_groups:
        group["weight_decay"] = decay


@fault("optimizer.not-its-update", "optimizer.weight-decay", why="a shrinking by hand is a decay", late=0.5)
def shrink_weights(run: LoopParts) -> None:
    """Weights are multiplied by 0.99 after each update, a leftover of a regulariser."""
    update = run.update

    @torch.no_grad()
    def shrunk() -> None:
        update()
        for weight in run.weights():
            weight.mul_(0.99)

    run.update = shrunk


@fault("optimizer.not-its-update")
def clamp_weights(run: LoopParts) -> None:
    """Weights are clamped to ±0.05 after each update, a leftover of a critic."""
    update = run.update

    @torch.no_grad()
    def clamped() -> None:
        update()
        for weight in run.weights():
            weight.clamp_(-0.05, 0.05)

    run.update = clamped


@fault("optimizer.not-its-update", "checkpoint.optimizer-lost", why="moments that are lost in every step")
def forget_moments(run: LoopParts) -> None:
    """A new optimizer in every step: its moments never live."""
    update = run.update

    def forgetful() -> None:
        run.optimizer.state.clear()
        update()

    run.update = forgetful


@fault("lr.too-low", "optimizer.no-update", why="an eps of 1000 leaves almost nothing of an update")
def raise_eps(run: LoopParts) -> None:
    """`eps` and `lr` were given in each other's place, or meant for another optimizer."""
    for group in run.optimizer.param_groups:
        group["eps"] = 1e3
