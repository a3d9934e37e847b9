"""What a loop shows of itself when it is put under watch, refused in words where it is something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from safelight.config.tree import Prediction
from safelight.errors import UsageError
from safelight.monitors.modules import trained
from safelight.probes.sampler import accepts
from safelight.watching.foreign import alphas_of, bare_optimizer, refuse_sharded, unwrapped


@dataclass(frozen=True, slots=True)
class WatchArguments:
    """What a loop shows of itself, refused in words where it is something else."""

    model: nn.Module
    optimizer: Any = None
    ema: Any = None
    schedule: Any = None
    """Becomes alphas_cumprod."""
    scaler: Any = None
    prediction: Prediction | None = None
    sampler: Callable[..., Any] | None = None
    data: Any = None

    def __post_init__(self) -> None:
        refuse_sharded(self.model)  # on every process: one that goes on alone would wait for the others
        object.__setattr__(self, "schedule", alphas_of(self.schedule))
        if not trained(unwrapped(self.model)):
            raise UsageError("The model has no parameter that requires a gradient: there is nothing to watch.")
        if self.optimizer is not None:
            bare_optimizer(self.optimizer)  # before a folder is made
        if self.prediction not in (None, "epsilon", "sample", "v_prediction"):
            raise UsageError(
                f"prediction is {self.prediction!r}. Use epsilon, sample or v_prediction, or leave it out."
            )
        if self.sampler is not None and not accepts(self.sampler):
            raise UsageError("sampler should be a function of (model, noise) that returns samples.")
