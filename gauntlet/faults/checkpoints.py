"""Faults of what is saved and loaded, in the project's own trainer."""

from __future__ import annotations

from torch import Tensor

from gauntlet.fault import fault
from gauntlet.loop_parts import LoopParts


@fault("checkpoint.optimizer-lost", bases=("own",), harms=False)
def lose_moments(run: LoopParts) -> None:
    """The moments of the optimizer are not loaded."""
    import safelight.training.state as state

    state.load_optimizer = lambda *_: None


@fault("checkpoint.average-lost", bases=("own",), harms=False)
def lose_average(run: LoopParts) -> None:
    """The average is loaded from the raw weights."""
    averages = run.ema

    def load(ema_name: str, tensors: dict[str, Tensor]) -> None:
        for shadow, weight in zip(averages.shadows[ema_name], run.weights(), strict=True):
            shadow.copy_(weight.detach())

    averages.load = load


@fault("checkpoint.not-exact", "checkpoint.optimizer-lost", why="part of the moments is what is not exact",
       bases=("own",), harms=False)  # fmt: skip
def save_in_half(run: LoopParts) -> None:
    """Moments are saved in half precision to save space."""
    import safelight.training.state as state

    tensors = state.optimizer_tensors
    state.optimizer_tensors = lambda *given: {name: value.half().float() for name, value in tensors(*given).items()}
