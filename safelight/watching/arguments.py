"""The arguments of `watch`, validated."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from safelight.checks import SPACES
from safelight.config.tree import Features
from safelight.diffusion.process import SIGMA_DATA
from safelight.diffusion.schedulers import declaration_of, prediction_of
from safelight.errors import UsageError
from safelight.monitors.parameters import trainable_parameters, unwrapped
from safelight.probes.forward_pass import ProcessSpec
from safelight.probes.sampler import accepts
from safelight.watching.foreign import bare_optimizer, refuse_partitioned

Space = Literal["pixel", "latent"]


@dataclass(frozen=True, slots=True)
class PreviewIntervals:
    """How often samples are drawn and compared with images; unset: within a share of the time, 0: never."""

    sample_every: int | None = None
    evaluate_every: int | None = None
    features: Features = "lite0"
    target_distance: float | None = None
    """That is aimed at."""

    def __post_init__(self) -> None:
        for name in ("sample_every", "evaluate_every"):
            every = getattr(self, name)
            if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 0):
                raise UsageError(f"{name} is {every!r}. Use a number of updates, 0 for never, or leave it out.")
        if self.features not in ("lite0", "inception"):
            raise UsageError(f"features is {self.features!r}. Use lite0 or inception.")
        target = self.target_distance
        if target is not None and (isinstance(target, bool) or not isinstance(target, int | float) or not target > 0):
            raise UsageError(f"target_distance is {target!r}. Use a distance above 0, or leave it out.")


@dataclass(frozen=True)
class WatchArguments:
    """What a loop shows of itself, refused in words where it is something else."""

    model: nn.Module
    optimizer: Any = None
    ema: Any = None
    schedule: Any = None
    """The same as `process`, by its older name; of it, only a flow's scheduler also says what is predicted."""
    scaler: Any = None
    prediction: str | None = None
    sampler: Callable[..., Any] | None = None
    data: Any = None
    process: Any = None
    previews: PreviewIntervals = PreviewIntervals()
    space: Space | None = None
    """What the model is trained on; seen by its channels and distribution where it is not declared."""
    held_out: Any = None
    """Images that the loop does not train on."""

    def __post_init__(self) -> None:
        refuse_partitioned(self.model)  # on every process, before a folder is made
        object.__setattr__(self, "prediction", prediction_of(self.prediction))
        _ = self.declared
        if not trainable_parameters(unwrapped(self.model)):
            raise UsageError("The model has no parameter that requires a gradient: there is nothing to watch.")
        if self.optimizer is not None:
            bare_optimizer(self.optimizer)  # before a folder is made
        if self.space is not None and self.space not in SPACES:
            raise UsageError(f"space is {self.space!r}. Use pixel or latent, or leave it out.")
        if self.sampler is not None and not accepts(self.sampler):
            raise UsageError("sampler should be a function of (model, noise) that returns samples.")

    @functools.cached_property
    def declared(self) -> ProcessSpec:
        """For the probes: what is known before the first step."""
        if self.process is not None and self.schedule is not None:
            raise UsageError("process and schedule both say how x_t is made. Give one of them: process.")
        given = self.schedule if self.process is None else self.process
        if given is None:
            return ProcessSpec(prediction=self.prediction)
        found = declaration_of(given)
        # The prediction type of a table's scheduler is a default that few loops set: `schedule` never took it.
        implied = found.prediction if self.process is not None or found.family is not None else None
        prediction = self.prediction or implied
        if found.family is not None and found.family.name == "ve" and found.family.sigma_data is None:
            prediction = self.prediction  # of x0 + σ·noise as such, everybody predicts something else
        return ProcessSpec(
            found.alphas, prediction, found.process, SIGMA_DATA, found.family, found.any_scale,
            is_told=found.process is None,
        )  # fmt: skip
