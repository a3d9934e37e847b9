"""Faults of the noising: the formula, its coefficients and its noise."""

from __future__ import annotations

import torch
from torch import Tensor

from gauntlet.fault import fault
from gauntlet.hyperparameters import make_table
from gauntlet.loop_parts import LoopParts, noised, per_sample
from gauntlet.options import ALL

FORMULA = "another table and another formula cannot always be told apart"


@fault("forward.other-schedule", "forward.no-noise", why="hardly any noise is added at any timestep")
def forget_cumprod(run: LoopParts) -> None:
    """`alphas[t]` instead of `alphas_cumprod[t]`."""
    alphas = run.table / torch.cat([torch.ones(1), run.table[:-1]])
    run.add_noise = lambda x0, noise, t: noised(alphas, x0, noise, t)


@fault("forward.other-schedule", "forward.not-the-formula", why=FORMULA)
def forget_roots(run: LoopParts) -> None:
    """ᾱ·x0 + (1 − ᾱ)·noise, without the square roots."""

    def linear(x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        kept = per_sample(run.table[t].float(), x0)
        return kept * x0 + (1 - kept) * noise

    run.add_noise = linear


@fault("forward.other-schedule", late=0.5)
def noise_by_other_schedule(run: LoopParts) -> None:
    """Noised by the other of linear and cosine than is declared."""
    other = make_table("linear" if run.options.schedule == "cosine" else "cosine", run.options.timesteps)
    run.add_noise = lambda x0, noise, t: noised(other, x0, noise, t)


@fault("forward.noise-not-normal", doses=("0 to 1", "-1 to 1", "half"), bases=ALL)
def draw_other_noise(run: LoopParts, kind: str) -> None:
    """`rand_like` for `randn_like`, or noise of half the size."""
    kinds = {
        "0 to 1": lambda x0: torch.rand(x0.shape),
        "-1 to 1": lambda x0: torch.rand(x0.shape) * 2 - 1,
        "half": lambda x0: 0.5 * torch.randn(x0.shape),
    }
    run.draw_noise = kinds[kind]


@fault("forward.clamped", late=0.5, bases=ALL, undeclared=("target.other-noise",))
def clamp_noised(run: LoopParts) -> None:
    """x_t is clamped to [-1, 1] as if it were an image."""
    add = run.add_noise
    run.add_noise = lambda x0, noise, t: add(x0, noise, t).clamp(-1, 1)


@fault("forward.no-noise", "forward.not-the-formula", why="no noise is no formula either", late=0.5, bases=ALL)
def forget_noise(run: LoopParts) -> None:
    """The clean image goes into the model."""
    run.add_noise = lambda x0, noise, t: x0.clone()


@fault("forward.noise-repeated", bases=ALL)
def share_noise_in_batch(run: LoopParts) -> None:
    """One noise, `randn(1, …)`, is broadcast over the batch."""
    draw = run.draw_noise
    run.draw_noise = lambda x0: draw(x0)[:1].expand(x0.shape).clone()


@fault("forward.noise-repeated", late=0.5, bases=ALL)
def keep_noise(run: LoopParts) -> None:
    """The noise was drawn before the loop."""
    draw, kept = run.draw_noise, []

    def same(x0: Tensor) -> Tensor:
        if not kept:
            kept.append(draw(x0))
        return kept[0][: len(x0)]

    run.draw_noise = same


@fault("forward.not-the-formula", "forward.other-schedule", why=FORMULA)
def swap_coefficients(run: LoopParts) -> None:
    """√(1 − ᾱ)·x0 + √ᾱ·noise."""
    table = 1 - run.table
    run.add_noise = lambda x0, noise, t: noised(table, x0, noise, t)


@fault("forward.not-the-formula", "timesteps.shuffled", "forward.other-schedule",
       why="the coefficients are right for another timestep", bases=ALL,
       undeclared=("timesteps.not-the-noise",))  # fmt: skip
def use_first_coefficients(run: LoopParts) -> None:
    """The coefficients of the first sample are broadcast over the batch."""
    add = run.add_noise
    run.add_noise = lambda x0, noise, t: add(x0, noise, t[:1].expand(len(t)))


@fault(
    "forward.not-the-formula",
    "target.fresh-noise",
    why="the noise in x_t and the noise in the target differ",
    bases=ALL,
    undeclared=("target.other-noise",),
)
def noise_afresh(run: LoopParts) -> None:
    """The function that adds noise draws its own."""
    add = run.add_noise
    run.add_noise = lambda x0, noise, t: add(x0, torch.randn_like(noise), t)


@fault("forward.not-the-formula", "forward.other-schedule", why=FORMULA)
def noise_twice(run: LoopParts) -> None:
    """The data set adds noise, and the loop again."""
    add = run.add_noise
    run.add_noise = lambda x0, noise, t: add(add(x0, noise, t), noise, t)


@fault(
    "forward.not-the-formula",
    "conditioning.permuted",
    why="labels belong to other images than x_t does",
    bases=ALL,
    undeclared=("target.other-noise",),
)
def noise_neighbour(run: LoopParts) -> None:
    """x_t is made of the images of another row."""
    add = run.add_noise
    run.add_noise = lambda x0, noise, t: add(x0.roll(1, 0), noise, t)
