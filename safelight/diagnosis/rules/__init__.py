"""All rules, by the part of a run that is at fault."""

from __future__ import annotations

from safelight.diagnosis.rules import (
    checkpoint,
    clipping,
    conditioning,
    curve,
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
    samples,
    scale,
    schedule,
    system,
    target,
)

RULES = (
    *data.RULES,
    *scale.RULES,
    *conditioning.RULES,
    *schedule.RULES,
    *noising.RULES,
    *target.RULES,
    *loss.RULES,
    *curve.RULES,
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
    *samples.RULES,
    *system.RULES,
)
