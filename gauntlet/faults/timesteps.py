"""Faults of the timestep: how it is drawn, and what becomes of it on its way to the model."""

from __future__ import annotations

import torch

from gauntlet.fault import fault
from gauntlet.loop_parts import LoopParts
from gauntlet.options import ALL, CONTINUOUS, FOREIGN


@fault("timesteps.gap", doses=(2, 10), shown=("loss and t", "loss"))
def draw_low_part(run: LoopParts, part: int) -> None:
    """`randint(0, T // 2)`: high noise is never seen."""
    draw = run.draw_t
    run.draw_t = lambda x0: draw(x0) // part


@fault("timesteps.gap")
def draw_high_part(run: LoopParts) -> None:
    """Low noise is never drawn."""
    draw, last = run.draw_t, run.options.timesteps
    run.draw_t = lambda x0: last // 2 + draw(x0) // 2


@fault("timesteps.gap")
def draw_sampling_steps_only(run: LoopParts) -> None:
    """The fifty timesteps of the sampler are drawn in training, from its shorter list of indices."""
    draw = run.draw_t
    run.draw_t = lambda x0: draw(x0) // 20


@fault("timesteps.shuffled", late=0.5, bases=ALL, undeclared=("timesteps.not-the-noise",))
def shuffle_timesteps(run: LoopParts) -> None:
    """The batch is noised before the timesteps are sorted, shuffled or gathered."""
    add = run.add_noise
    run.add_noise = lambda x0, noise, t: add(x0, noise, t[torch.randperm(len(t))])


@fault("timesteps.repeated", "forward.noise-repeated", why="both are drawn from the same state",
       bases=(*FOREIGN, *CONTINUOUS), late=0.5, shown=("loss and t",))  # fmt: skip
def seed_every_step(run: LoopParts) -> None:
    """`torch.manual_seed(0)` stands inside the loop."""

    def seeded() -> None:
        torch.manual_seed(0)

    run.begin = seeded


@fault("timesteps.repeated", bases=("own",))
def repeat_timesteps(run: LoopParts) -> None:
    """The timesteps of the first batch are those of all."""
    draw, kept = run.draw_t, []

    def same(x0: torch.Tensor) -> torch.Tensor:
        if not kept:
            kept.append(draw(x0))
        return kept[0]

    run.draw_t = same


@fault("timesteps.constant", "timesteps.gap", why="all other timesteps are a gap", shown=("loss and t",))
def fix_timestep(run: LoopParts) -> None:
    """The timestep was fixed while debugging."""
    run.draw_t = lambda x0: torch.full((len(x0),), 500)


@fault("timesteps.out-of-range", "timesteps.shuffled", why="a negative index is another timestep")
def draw_negative_timesteps(run: LoopParts) -> None:
    """Timesteps are shifted below zero, where an index counts from the end."""
    draw = run.draw_t
    run.draw_t = lambda x0: draw(x0) - 100


@fault("timesteps.not-passed-on", "model.embedding-collapsed", "timesteps.out-of-range",
       why="t / 1000 is a t that the embedding cannot tell apart")  # fmt: skip
def pass_fraction(run: LoopParts) -> None:
    """The model is given t / T, and its embedding expects 0 to 999."""
    call, last = run.call_model, run.options.timesteps
    run.call_model = lambda x_t, t, labels: call(x_t, t / last, labels)


@fault("timesteps.not-passed-on", "model.blind-to-timestep", "timesteps.not-the-noise",
       why="the model never learns what t is", late=0.5, bases=ALL)  # fmt: skip
def pass_zero(run: LoopParts) -> None:
    """The model is always told timestep 0."""
    call = run.call_model
    run.call_model = lambda x_t, t, labels: call(x_t, torch.zeros_like(t), labels)


@fault("timesteps.not-passed-on")
def pass_reversed(run: LoopParts) -> None:
    """The model is told T - 1 - t in training, and t in sampling."""
    call, last = run.call_model, run.options.timesteps
    run.call_model = lambda x_t, t, labels: call(x_t, last - 1 - t, labels)


@fault("timesteps.not-passed-on", bases=ALL, undeclared=("timesteps.not-the-noise",))
def pass_batch_first(run: LoopParts) -> None:
    """The model is told the first timestep of the batch for all of it: `t[0]`."""
    call = run.call_model
    run.call_model = lambda x_t, t, labels: call(x_t, t[:1].expand(len(t)), labels)
