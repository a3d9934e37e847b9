"""How many rules had the readings they need, and which readings the others lack."""

from __future__ import annotations

from typing import NamedTuple

from safelight.checks import Check
from safelight.diagnosis.rule import CONFIG, Need, Rule
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.run_history import RunHistory, name_of
from safelight.vocabulary import Signal


class Coverage(NamedTuple):
    looked: int
    """Rules that had all they need."""
    missing: dict[str, tuple[str, ...]]
    """By the code of every other rule: the names of what it lacks, as they would be recorded."""


def coverage(run: RunHistory, rules: tuple[Rule, ...] = RULES) -> Coverage:
    recorded = set(run.readings.signals())
    found = {rule.code: _missing(rule, run, recorded) for rule in rules}
    missing = {code: names for code, names in found.items() if names}
    return Coverage(len(found) - len(missing), missing)


def _missing(rule: Rule, run: RunHistory, recorded: set[str]) -> tuple[str, ...]:
    groups = [need if isinstance(need, tuple) else (need,) for need in rule.needs]
    lacking = [group for group in groups if not any(_is_there(need, run, recorded) for need in group)]
    return tuple(name_of(need) for group in lacking for need in group)


def _is_there(need: Need, run: RunHistory, recorded: set[str]) -> bool:
    if need == CONFIG:
        return run.config is not None
    if isinstance(need, Signal) and need.family:
        return bool(run.parts(need))
    if isinstance(need, Check) and need.implied_by is not None and name_of(need.implied_by) in recorded:
        return True
    return name_of(need) in recorded
