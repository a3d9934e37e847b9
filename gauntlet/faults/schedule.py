"""Faults of the noise schedule, in the very object that the watch is given."""

from __future__ import annotations

import torch

from gauntlet.fault import fault
from gauntlet.loop_parts import LoopParts
from gauntlet.options import FOREIGN


@fault("schedule.not-decreasing", bases=FOREIGN)
def flip_table(run: LoopParts) -> None:
    """The table runs from noise to image."""
    run.declare(run.table.flip(0))


@fault("schedule.not-decreasing", bases=FOREIGN)
def scramble_table(run: LoopParts) -> None:
    """The second half of the table was sorted as text."""
    order = torch.arange(len(run.table))
    late = order[len(order) // 2 :]
    run.declare(run.table[torch.cat([order[: len(order) // 2], late[torch.randperm(len(late))]])])


@fault("schedule.signal-left", bases=("mixture",))
def clip_betas(run: LoopParts) -> None:
    """The betas of a cosine schedule are cut at 0.002, after a rule for linear ones."""
    alphas = run.table / torch.cat([torch.ones(1), run.table[:-1]])
    run.declare(alphas.clamp(min=0.998).cumprod(0))


@fault("schedule.signal-left", bases=FOREIGN)
def thin_betas(run: LoopParts) -> None:
    """Betas for 1000 timesteps, of which only every tenth is applied."""
    alphas = run.table / torch.cat([torch.ones(1), run.table[:-1]])
    run.declare((1 - (1 - alphas.double()) / 10).cumprod(0).float())


@fault("schedule.zero-snr-epsilon", bases=FOREIGN)
def end_in_pure_noise(run: LoopParts) -> None:
    """The terminal signal is rescaled to zero, and the noise is still what is predicted."""
    root = run.table.double().sqrt()
    root = (root - root[-1]) * root[0] / (root[0] - root[-1])
    run.declare(root.square().float())
