"""How long a step takes, and a smaller network that is offered where a training on a CPU would take long."""

from __future__ import annotations

import math
from dataclasses import replace

from safelight.config.check import check
from safelight.config.resolve import resolve
from safelight.errors import SafelightError
from safelight.model.memory import is_out_of_memory
from safelight.terminal import duration
from safelight.training.build import Setup, build, out_of_memory
from safelight.training.step import seconds_per_step

SMALLEST, LONG_SECONDS = "digits", 600.0  # preset; a training from which on it is offered


def smaller_network(setup: Setup, seconds: float) -> str | None:
    """What the smallest preset would take on these images, where a CPU would train long; timed by a step of it."""
    config, total = setup.config, seconds * setup.config.train.steps
    small = resolve(preset=SMALLEST, settings={"data.image_size": config.data.image_size})
    is_alone = setup.runtime.device.type == "cpu" and setup.group.size == 1
    if not is_alone or not total > LONG_SECONDS or config.model.widths <= small.model.widths:
        return None
    network = replace(small.model, conditional=config.model.conditional)
    tried = replace(config, model=network, optimizer=small.optimizer, train=replace(small.train, threads=None))
    try:
        check(tried)
        parts = build(tried, setup.images, lambda text: None)
        parts.loader.close()
        each = seconds_per_step(parts.stepper, parts.loader.prepare(0))
    except (SafelightError, RuntimeError, ValueError):
        return None
    count = sum(parameter.numel() for parameter in parts.state.model.parameters()) / 1e6
    steps = tried.train.steps
    return (
        f"A smaller network takes about {duration(each * steps)} for {steps:,} steps ({count:.2f} M parameters): "
        f"--preset {SMALLEST} --image-size {config.data.image_size}"
    )


def measure_seconds_per_step(setup: Setup) -> float:
    """By a step of the run itself, before the first one; NaN where healing has to find what fits into memory."""
    try:
        return seconds_per_step(setup.stepper, setup.loader.prepare(setup.state.counters.step))
    except RuntimeError as error:
        if is_out_of_memory(error):
            if setup.config.heal.enabled:
                return math.nan  # the first step will find what fits
            raise out_of_memory(setup.config) from error
        raise
