"""Faults of samplers in continuous time."""

from __future__ import annotations

import torch
from torch import nn

from gauntlet.bases.continuous import Continuous, Way, walk
from gauntlet.fault import fault
from gauntlet.loop_parts import LoopParts
from gauntlet.options import CONTINUOUS


def go(run: LoopParts, way: Way) -> None:
    """The sampler, with one thing done otherwise."""
    assert isinstance(run, Continuous)
    loop = run

    def sample(model: nn.Module, noise: torch.Tensor) -> torch.Tensor:
        return walk(loop, model, noise, way)

    run.sample = sample


@fault("sampler.last-noise", bases=CONTINUOUS)
def end_with_noise(run: LoopParts) -> None:
    """Noise is added after the last step."""
    go(run, Way(last_noise=0.2))


@fault("sampler.starts-late", bases=CONTINUOUS, doses=(0.5, 0.02))
def begin_late(run: LoopParts, share: float) -> None:
    """Pure noise is taken for the x_t of an earlier time."""
    assert isinstance(run, Continuous)
    go(run, Way(start=share if run.base == "flow" else share * 0.05))


@fault("sampler.wrong", "sampler.other-type", why="the opposite of an answer is one of another type", bases=CONTINUOUS)
def turn_answer(run: LoopParts) -> None:
    """The sampler subtracts where it should add."""
    go(run, Way(answer=lambda answer, x, s: -answer))


@fault("sampler.other-type", bases=("flow",))
def take_answer_for_noise(run: LoopParts) -> None:
    """The sampler makes a velocity of an answer that is one."""
    go(run, Way(answer=lambda answer, x, s: (answer - x) / (1 - s).clamp(min=0.02)))


@fault("sampler.clipped", "sampler.wrong", why="a clamp on the way bends it", bases=CONTINUOUS)
def clip_on_the_way(run: LoopParts) -> None:
    """Clean samples are clipped to half of their range."""
    go(run, Way(bound=0.4))


@fault("sampler.wrong", "sampler.starts-late", why="too little noise is that of an earlier time", bases=CONTINUOUS)
def begin_with_little_noise(run: LoopParts) -> None:
    """The first noise is scaled to 0.3."""
    go(run, Way(first=0.3))


@fault("sampler.other-times", "sampler.wrong", why="it may be right for none", bases=CONTINUOUS)
def tell_other_time_in_sampling(run: LoopParts) -> None:
    """The sampler tells the network s, or σ, as it is."""
    go(run, Way(told=lambda s: s))


@fault("sampler.other-times", "sampler.wrong", why="an input of another size has another noise", bases=("edm",))
def forget_scale_in_sampling(run: LoopParts) -> None:
    """The sampler forgets c_in."""
    go(run, Way(scale=torch.ones_like))


@fault("sampler.wrong", "sampler.last-noise", why="a sample that is never denoised is all noise", bases=CONTINUOUS)
def stop_half_way(run: LoopParts) -> None:
    """The loop over times ends half way."""
    go(run, Way(steps=12))


@fault("system.sampling-with-gradients", bases=CONTINUOUS, harms=False)
def keep_gradients(run: LoopParts) -> None:
    """`no_grad` is missing around the sampler."""
    go(run, Way(gradients=True))
