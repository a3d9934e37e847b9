"""All rules, by the part of a run that is at fault."""

from __future__ import annotations

from safelight.diagnosis.rules import (
    checkpoint,
    clipping,
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
    *model.RULES,
    *optimizer.RULES,
    *lr.RULES,
    *ema.RULES,
    *mode.RULES,
    *precision.RULES,
    *clipping.RULES,
    *distributed.RULES,
    *checkpoint.RULES,
    *sampler.RULES,
    *generalisation.RULES,
    *samples.RULES,
    *system.RULES,
)
