"""What is measured once: settings, weights and images before the first step, and the sampler when it can be driven."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from safelight import checks
from safelight.monitors.parameters import MAX_NAMES_IN_EVENT, trainable_parameters
from safelight.probes.dataset import measure_images, most_images, take_images
from safelight.probes.forward_pass import ProcessSpec
from safelight.probes.runner.guard import ProbeGuard
from safelight.probes.runner.inspected_loop import InspectedLoop
from safelight.probes.sampler import accepts, measure_sampler
from safelight.probes.settings import (
    measure_adapters,
    measure_optimizer,
    measure_resume,
    measure_schedule,
    unmatched_parameters,
)


class StartProbe:
    """`declared` is passed anew with every call: more of it may be known then."""

    def __init__(self, subject: InspectedLoop, guard: ProbeGuard) -> None:
        self._subject, self._guard = subject, guard
        self.has_sampled = False  # the sampler was measured
        self._sampled: tuple[tuple[int, ...], float] | None = None  # shape and reach of what a sampler returns
        self._taken: np.ndarray | None = None  # images of a dataset that is slow to read, for whom else they serve

    def measure(self, declared: ProcessSpec, from_step: int) -> dict[str, float]:
        """All that is known before the first step. `from_step`: updates that were made before."""
        subject, measure = self._subject, self._guard.measure
        readings: dict[str, float] = {}
        if declared.alphas is not None:
            readings |= measure("schedule", measure_schedule, declared.alphas, declared.prediction)
        if subject.optimizer is not None:
            readings |= measure("optimizer", measure_optimizer, subject.model, subject.optimizer, subject.also_held)
        readings |= measure("adapters", measure_adapters, subject.model)
        if from_step:
            weights = [parameter for _, parameter in trainable_parameters(subject.model)]
            readings |= measure("resume", measure_resume, from_step, subject.optimizer, subject.read_ema(), weights)
        readings |= measure("data", self._measure_data, declared)
        readings |= _declared_target(declared)
        if subject.space is not None:
            readings[checks.BATCH_SPACE] = float(checks.SPACES.index(subject.space))
        return readings | {checks.PRECISION_SCALED: float(subject.scaled)}

    def measure_settled(self, declared: ProcessSpec) -> dict[str, float]:
        """What was waiting for it to be known what the loop trains."""
        readings = _declared_target(declared)
        if self._sampled is not None and not self.has_sampled:
            readings |= self.measure_sampler(declared, *self._sampled)
        return readings

    def _measure_data(self, declared: ProcessSpec) -> dict[str, float]:
        """The images, and the sampler where they show what it has to return."""
        images = take_images(self._subject.data)
        if images is None:
            return {}
        self._taken = images[:: math.ceil(len(images) / max(1, most_images(images[0].nbytes)))].copy()
        readings = self._guard.measure("data", measure_images, images)
        if readings.get(checks.DATA_INTEGER):
            return readings
        return readings | self.measure_sampler(declared, tuple(images.shape[1:]), readings.get(checks.DATA_REACH, 1.0))

    def measure_sampler(self, declared: ProcessSpec, shape: tuple[int, ...], reach: float) -> dict[str, float]:
        """`reach`: of the images, from 0."""
        sampler = self._subject.sampler
        self._sampled = shape, reach
        if sampler is None or not declared.can_sample or not accepts(sampler):
            return {}
        self.has_sampled = True
        subject = self._subject
        given = sampler, declared, shape, reach, subject.device, subject.model
        readings = self._guard.measure("sampler", measure_sampler, *given)
        if reason := self._guard.broken.get("sampler"):
            self._guard.say(f"The sampler failed with a network that knows the answer, and is not checked ({reason}).")
            readings[checks.SAMPLER_FAILED] = 1.0
        return readings

    def pop_images(self) -> np.ndarray | None:
        """Of the dataset, once: more than were measured where that costs nothing, and no more bytes than a bound."""
        data, taken, self._taken = self._subject.data, self._taken, None
        if taken is None or not isinstance(data, Tensor | np.ndarray):
            return taken
        return take_images(data, most_images(taken[0].nbytes))

    def names(self) -> dict[str, list[str]]:
        """Of parameters that are missing in the optimizer, or frozen and in it: the first of them."""
        subject = self._subject
        if subject.optimizer is None:
            return {}
        unmatched = unmatched_parameters(subject.model, subject.optimizer, subject.also_held)
        return {kind: names[:MAX_NAMES_IN_EVENT] for kind, names in unmatched.items() if names}


def _declared_target(declared: ProcessSpec) -> dict[str, float]:
    prediction = declared.prediction
    return {} if prediction is None else {checks.TARGET_DECLARED: float(checks.PREDICTIONS.index(prediction))}
