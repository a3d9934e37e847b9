"""All rules, by the part of a run that is at fault."""

from __future__ import annotations

from safelight.diagnosis.rule import Rule
from safelight.diagnosis.rules import (
    checkpoint,
    conditioning,
    data,
    distributed,
    ema,
    generalisation,
    loss,
    lr,
    mode,
    model,
    noising,
    optimizer,
    precision,
    sampler,
    scale,
    schedule,
    spikes,
    system,
    target,
)

RULES: tuple[Rule, ...] = (
    *data.RULES,
    *scale.RULES,
    *conditioning.RULES,
    *schedule.RULES,
    *noising.RULES,
    *target.RULES,
    *loss.RULES,
    *spikes.RULES,
    *model.RULES,
    *optimizer.RULES,
    *lr.RULES,
    *ema.RULES,
    *mode.RULES,
    *precision.RULES,
    *distributed.RULES,
    *checkpoint.RULES,
    *sampler.RULES,
    *generalisation.RULES,
    *system.RULES,
)
