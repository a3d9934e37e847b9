"""Faults of the learning rate."""

from __future__ import annotations

from gauntlet.fault import fault
from gauntlet.loop_parts import LoopParts


@fault("lr.too-high", "loss.diverged", why="a rate this high ends in divergence", doses=(100.0, 1000.0),
       late=0.5, shown=("loss",))  # fmt: skip
def raise_rate(run: LoopParts, factor: float) -> None:
    """The learning rate is many times too high."""
    rate = run.rate
    run.rate = lambda step: factor * rate(step)


@fault("lr.too-low", doses=(100.0, 1000.0, 1e6), shown=("loss",))
def lower_rate(run: LoopParts, factor: float) -> None:
    """The learning rate is many times too low."""
    rate = run.rate
    run.rate = lambda step: rate(step) / factor


@fault("lr.zero", late=0.5)
def zero_rate(run: LoopParts) -> None:
    """A scheduler multiplies by zero."""
    run.rate = lambda step: 0.0


@fault("lr.no-warmup", "lr.too-high", "lr.jump", why="it is too high only as long as a warmup should last")
def skip_warmup(run: LoopParts) -> None:
    """The first tenth of the run has thirty times the rate, for which a warmup was meant."""
    rate, high = run.rate, 30 * run.options.lr
    run.rate = lambda step: high if step < run.options.steps // 10 else rate(step)


@fault("lr.ended-early", "lr.zero", "lr.too-low", why="at its end the rate is nearly nothing")
def end_rate_early(run: LoopParts) -> None:
    """The scheduler is stepped by every process and micro-batch: eight times too often."""
    rate, steps = run.rate, run.options.steps
    run.rate = lambda step: rate(8 * step) if 8 * step < steps else 0.02 * rate(steps - 1)


@fault("lr.jump", "lr.too-high", why="after the jump the rate is too high", begin=0.6)
def jump_rate(run: LoopParts) -> None:
    """A resumed scheduler starts again, in other units."""
    run.rate = lambda step: 50 * run.options.lr


@fault("lr.jump", "loss.spike", "precision.transient", why="one step, and a jump of the loss", begin=0.6, once=True)
def burst_rate(run: LoopParts) -> None:
    """One step has five hundred times the rate."""
    run.rate = lambda step: 500 * run.options.lr
