"""Faults of the target: what the model is asked for is not what the sampler expects."""

from __future__ import annotations

import torch

from gauntlet.fault import fault
from gauntlet.loop_parts import LoopParts, noised, target
from gauntlet.options import ALL


@fault("target.other-type", doses=(1, 2), late=0.5)
def ask_for_other_type(run: LoopParts, shift: int) -> None:
    """The image, the velocity or the noise is trained on, and another is sampled with."""
    kinds = ("epsilon", "sample", "v_prediction")
    other = kinds[(kinds.index(run.options.prediction) + shift) % 3]
    run.target_of = lambda x0, noise, t: target(other, run.table, x0, noise, t)


@fault("target.fresh-noise", late=0.5, shown=("loss and t",), bases=ALL, undeclared=("target.other-noise",))
def ask_for_fresh_noise(run: LoopParts) -> None:
    """`randn_like` is called a second time for the target."""
    run.target_of = lambda x0, noise, t: torch.randn_like(noise)


@fault(
    "target.wrong",
    "target.other-type",
    why="a negative noise is another type of target",
    bases=ALL,
    undeclared=("target.against-time", "target.scaled", "sampler.other-type", "sampler.wrong"),
)
def ask_for_negative(run: LoopParts) -> None:
    """The sign of the target is wrong."""
    ask = run.target_of
    run.target_of = lambda x0, noise, t: -ask(x0, noise, t)


@fault("target.wrong", doses=(0.5, 3.0), bases=ALL, undeclared=("target.scaled", "sampler.wrong"))
def scale_target(run: LoopParts, factor: float) -> None:
    """The target is scaled, the sampler does not know."""
    ask = run.target_of
    run.target_of = lambda x0, noise, t: factor * ask(x0, noise, t)


@fault("target.wrong", "target.other-type", why="x_t is a mixture of the types")
def ask_for_input(run: LoopParts) -> None:
    """The target is x_t itself."""
    run.target_of = lambda x0, noise, t: noised(run.table, x0, noise, t)


@fault(
    "target.wrong",
    "target.fresh-noise",
    why="a neighbour's noise is as good as fresh",
    bases=ALL,
    undeclared=("target.other-noise",),
)
def ask_for_neighbour(run: LoopParts) -> None:
    """The targets are those of the next row."""
    ask = run.target_of
    run.target_of = lambda x0, noise, t: ask(x0, noise, t).roll(1, 0)


@fault("target.wrong", "target.other-type", why="what was added is a type of target of its own")
def ask_for_difference(run: LoopParts) -> None:
    """The target is x_t − x0, what was added to the image."""
    run.target_of = lambda x0, noise, t: noised(run.table, x0, noise, t) - x0
