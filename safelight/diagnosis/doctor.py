"""Runs all rules over a run, from its record alone: while it trains, or after its death."""

from __future__ import annotations

from pathlib import Path

from safelight.config.resolve import resolve
from safelight.diagnosis.case import Case
from safelight.diagnosis.finding import ORDER, Evidence, Finding, Fix
from safelight.diagnosis.rule import Rule
from safelight.diagnosis.rules import RULES
from safelight.errors import UsageError
from safelight.record.history import open_history
from safelight.run import open_recorded


def diagnose(run: str | Path) -> list[Finding]:
    """What is wrong with a run, the worst first; an empty list for one in which nothing was found."""
    folder = open_recorded(Path(run))
    config = resolve(file=folder.config) if folder.config.is_file() else None
    with open_history(folder.record) as history:
        return examine(Case(history, config, folder.status()))


def examine(case: Case, rules: tuple[Rule, ...] = RULES) -> list[Finding]:
    """The worst first, and what is over last. Rules are told from each other by what they look at: one disease gives
    one finding."""
    found: list[Finding] = []
    for rule in rules:
        try:
            finding = rule.look(case)
        except Exception as error:  # a rule that breaks must not take the others with it
            finding = _broken(rule, error)
        if finding is not None:
            found.append(finding)
    return sorted(found, key=lambda finding: (finding.over is not None, ORDER.index(finding.severity), finding.step))


def _broken(rule: Rule, error: Exception) -> Finding:
    return Finding(
        code=rule.code,
        cause=f"{rule.cause.partition('.')[0]}.rule-broken",
        severity="info",
        step=0,
        confidence=0.0,
        summary=f"Rule {rule.code} could not be asked ({type(error).__name__}: {error}). The other rules were.",
        evidence=(Evidence("error", str(error)),),
        fix=Fix("Please report it, with the record."),
    )


def explain(code: str) -> Rule:
    """The page of a rule, by its code or its cause."""
    for rule in RULES:
        if code.lower() in (rule.code.lower(), rule.cause):
            return rule
    from safelight.config.resolve import nearest

    names = [name for rule in RULES for name in (rule.code, rule.cause)]
    raise UsageError(f"There is no finding {code!r}{nearest(code, names)} `safelight explain` lists them.")
