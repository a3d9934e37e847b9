"""A rule: one disease, how it is told from its look-alikes, and a function of the history that looks for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from safelight.diagnosis.case import Case
from safelight.diagnosis.finding import Evidence, Finding, Fix, Severity


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look found, beyond what the rule's page says of the disease anyway."""

    step: int
    summary: str
    evidence: tuple[Evidence, ...] = ()
    ruled_out: tuple[str, ...] = ()
    confidence: float = 1.0
    severity: Severity | None = None
    """Where it is not the rule's."""
    fix: Fix | None = None
    """Where it is not the rule's."""
    over: int | None = None


Look = Callable[[Case], Seen | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """`explain` and the docs print all of it."""

    code: str
    cause: str
    title: str
    what: str
    why: str
    """Why it is bad."""
    alike: str
    """How it is told from what looks like it."""
    misses: str
    fix: str
    look: Look
    severity: Severity = "error"
    cure: Fix = field(default_factory=lambda: Fix(""))
    """What a finding advises; without words, those of `fix`."""
    yields: tuple[str, ...] = ()
    """Beginnings of causes that explain this one away: where one of them is found, this one only follows from it. A
    star stands for every cause that does not yield itself."""

    def find(self, case: Case) -> Finding | None:
        seen = self.look(case)
        if seen is None:
            return None
        fix = seen.fix or self.cure
        return Finding(
            code=self.code,
            cause=self.cause,
            severity=seen.severity or self.severity,
            step=seen.step,
            confidence=seen.confidence,
            summary=seen.summary,
            evidence=tuple(each for each in seen.evidence if _is_there(each)),
            fix=fix if fix.text else Fix(self.fix, fix.set, fix.safety),
            ruled_out=seen.ruled_out,
            over=seen.over,
        )


def _is_there(evidence: Evidence) -> bool:
    """A reading that nobody made is no evidence."""
    return isinstance(evidence.value, str) or not math.isnan(evidence.value) or evidence.steps is not None
