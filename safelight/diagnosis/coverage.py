"""How many rules had the readings they need, and which readings the others lack."""

from __future__ import annotations

from typing import NamedTuple

from safelight.checks import Check
from safelight.diagnosis.case import Case, name_of
from safelight.diagnosis.rule import CONFIG, Need, Rule
from safelight.diagnosis.rules import RULES
from safelight.vocabulary import Signal


class Coverage(NamedTuple):
    looked: int
    """Rules that had all they need."""
    missing: dict[str, tuple[str, ...]]
    """By the code of every other rule: the names of what it lacks, as they would be recorded."""


def coverage(case: Case, rules: tuple[Rule, ...] = RULES) -> Coverage:
    recorded = set(case.readings.signals())
    found = {rule.code: _missing(rule, case, recorded) for rule in rules}
    missing = {code: names for code, names in found.items() if names}
    return Coverage(len(found) - len(missing), missing)


def _missing(rule: Rule, case: Case, recorded: set[str]) -> tuple[str, ...]:
    groups = [need if isinstance(need, tuple) else (need,) for need in rule.needs]
    lacking = [group for group in groups if not any(_is_there(need, case, recorded) for need in group)]
    return tuple(name_of(need) for group in lacking for need in group)


def _is_there(need: Need, case: Case, recorded: set[str]) -> bool:
    if need == CONFIG:
        return case.config is not None
    if isinstance(need, Signal) and need.family:
        return bool(case.parts(need))
    if isinstance(need, Check) and need.implied_by is not None and name_of(need.implied_by) in recorded:
        return True
    return name_of(need) in recorded
