"""Updates that do not happen, or differ from what they should be."""

from __future__ import annotations

from safelight.diagnosis.rules.optimizer import applied, held, moved

RULES = (*moved.RULES, *held.RULES, *applied.RULES)
