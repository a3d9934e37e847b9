"""All rules, by the part of a run that is sick."""

from __future__ import annotations

from safelight.diagnosis.rule import Rule
from safelight.diagnosis.rules import ema, generalisation, loss, model, optimizer, precision, system

RULES: tuple[Rule, ...] = (
    *loss.RULES,
    *model.RULES,
    *optimizer.RULES,
    *precision.RULES,
    *ema.RULES,
    *generalisation.RULES,
    *system.RULES,
)
