"""Shapes of the loss curve, also where nothing but the loss is known: symptoms, where no rule knows the cause.

Healthy curves: 3,000 made ones (tests/support/loss_curves.py) and 165 of the gauntlet's recipes. By the tests of
loss_shapes.py alone none of them jumps up, rises or oscillates, by any factor.
"""

from __future__ import annotations

from safelight.diagnosis.rules.curve import jumps, trends

RULES = (*jumps.RULES, *trends.RULES)
