"""Faults of the sampler that the watch is given, and of the trainer's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gauntlet.bases.ddim import STEPS, Way, ddim
from gauntlet.fault import fault
from gauntlet.hyperparameters import make_table
from gauntlet.loop import Loop
from gauntlet.loop_parts import LoopParts
from gauntlet.options import FOREIGN


def walk_otherwise(
    run: LoopParts, way: Way | None = None, *, other_table: bool = False, other_type: bool = False
) -> None:
    """The sampler by hand, with one thing done otherwise."""
    kinds = {"epsilon": "sample", "sample": "v_prediction", "v_prediction": "epsilon"}
    prediction = kinds[run.options.prediction] if other_type else run.options.prediction
    other = make_table("linear" if run.options.schedule == "cosine" else "cosine", run.options.timesteps)
    run.sample = lambda model, noise: ddim(model, noise, other if other_table else run.table, prediction, way)


@fault("sampler.last-noise", bases=FOREIGN)
def add_last_noise(run: LoopParts) -> None:
    """Noise is added after the last step too."""
    walk_otherwise(run, Way(last_noise=0.2))


@fault("sampler.starts-late", bases=FOREIGN, doses=(500, 200))
def start_late(run: LoopParts, start: int) -> None:
    """Pure noise is taken for the image of an earlier timestep."""
    walk_otherwise(run, Way(start=start))


@fault("sampler.clipped", bases=FOREIGN)
def clip_clean_samples(run: LoopParts) -> None:
    """Clean samples are clipped to half of their range."""
    walk_otherwise(run, Way(bound=0.4))


@fault("sampler.other-schedule", bases=FOREIGN)
def sample_by_other_schedule(run: LoopParts) -> None:
    """The sampler has the other of linear and cosine."""
    walk_otherwise(run, other_table=True)


@fault("sampler.other-type", bases=FOREIGN)
def sample_as_other_type(run: LoopParts) -> None:
    """The sampler takes the answer for another type of prediction."""
    walk_otherwise(run, other_type=True)


@fault("sampler.wrong", bases=FOREIGN)
def forget_root_in_sampler(run: LoopParts) -> None:
    """1 − ᾱ for √(1 − ᾱ)."""
    walk_otherwise(run, Way(rooted=False))


@fault(
    "sampler.wrong", "sampler.starts-late", why="noise that is too small is that of an earlier timestep", bases=FOREIGN
)
def start_from_small_noise(run: LoopParts) -> None:
    """The first noise is scaled to 0.3."""
    walk_otherwise(run, Way(first_sigma=0.3))


@fault("sampler.wrong", bases=FOREIGN)
def tell_index_for_timestep(run: LoopParts) -> None:
    """The model is told the number of the sampling step, not its timestep."""
    last = run.options.timesteps
    walk_otherwise(run, Way(told_t=lambda t: round(t * STEPS / last)))


@fault("system.sampling-with-gradients", bases=FOREIGN, harms=False)
def sample_with_gradients(run: LoopParts) -> None:
    """`no_grad` is missing around the sampler."""
    walk_otherwise(run, Way(gradients=True))


@fault("sampler.wrong", "sampler.last-noise", why="a sample that is never denoised is all noise", bases=FOREIGN)
def return_half_way(run: LoopParts) -> None:
    """The loop over timesteps ends half way."""
    assert isinstance(run, Loop)

    def cut(model: nn.Module, noise: Tensor) -> Tensor:
        table = run.table
        clean = ddim(model, noise, table, run.options.prediction)
        kept = table[len(table) // 4]
        return kept.sqrt() * clean + (1 - kept).sqrt() * torch.randn_like(noise)

    run.sample = cut


def _change_scheduler(**changes: Any) -> None:
    import safelight.diffusion.sampling

    make = safelight.diffusion.sampling.make_scheduler

    def made(*given: Any) -> Any:
        return type(found := make(*given)).from_config(found.config, **changes)

    safelight.diffusion.sampling.make_scheduler = made


@fault("sampler.other-type", bases=("own",))
def make_scheduler_of_other_type(run: LoopParts) -> None:
    """The trainer's sampler takes velocities for noise."""
    _change_scheduler(prediction_type="epsilon")


@fault("sampler.other-schedule", bases=("own",))
def make_scheduler_of_other_table(run: LoopParts) -> None:
    """The trainer's sampler has a linear schedule."""
    _change_scheduler(trained_betas=None, beta_schedule="linear")


@fault("sampler.starts-late", bases=("own",))
def make_scheduler_that_leads(run: LoopParts) -> None:
    """The trainer's sampler never visits the last timesteps."""
    _change_scheduler(timestep_spacing="leading")
