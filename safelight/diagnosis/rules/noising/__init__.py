"""Noised images, noise and timesteps that are not what the loop declares."""

from __future__ import annotations

from safelight.diagnosis.rules.noising import forward, times

RULES = (*forward.RULES, *times.RULES)
