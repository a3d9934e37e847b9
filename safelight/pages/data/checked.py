"""What the rules could check of a run, by family: what passed, what was found, what lacks readings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safelight.config import Config
from safelight.diagnosis.coverage import coverage
from safelight.diagnosis.finding import subsystem_of
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.run_history import RunHistory
from safelight.record.history import History


def checked(history: History, cards: Sequence[dict[str, Any]], *, watched: bool) -> dict[str, Any]:
    """{"rules", "looked", "advice": what a watched loop should pass, or None, "families": [{"name", "rules", "passed":
    [titles], "found": [titles], "missing": [titles]}]}."""
    found = coverage(RunHistory(history, None if watched else Config()))
    advice = found.advice() if watched else None
    present = {card["code"] for card in cards if card["over"] is None}
    families: dict[str, dict[str, Any]] = {}
    for rule in RULES:
        name = subsystem_of(rule.cause)
        family = families.setdefault(name, {"name": name, "rules": 0, "passed": [], "found": [], "missing": []})
        family["rules"] += 1
        unable = rule.code in found.missing or rule.code in found.unable
        kind = "found" if rule.code in present else "missing" if unable else "passed"
        family[kind].append(rule.title)
    return {
        "rules": found.rules,
        "looked": found.looked,
        "advice": advice and advice.words(),
        "families": list(families.values()),
    }
