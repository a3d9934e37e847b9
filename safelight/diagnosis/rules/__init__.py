"""All rules, by the part of a run that is at fault."""

from __future__ import annotations

from safelight.diagnosis.rule import Rule
from safelight.diagnosis.rules import (
    checkpoint,
    clipping,
    conditioning,
    data,
    ema,
    generalisation,
    learning,
    loss,
    lr,
    model,
    noising,
    optimizer,
    precision,
    sampler,
    scale,
    schedule,
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
    *learning.RULES,
    *model.RULES,
    *optimizer.RULES,
    *lr.RULES,
    *ema.RULES,
    *precision.RULES,
    *clipping.RULES,
    *checkpoint.RULES,
    *sampler.RULES,
    *generalisation.RULES,
    *system.RULES,
)
