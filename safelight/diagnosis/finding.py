"""A finding: the cause by name, the readings that prove it, and the fix."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from safelight.diagnosis.blamed_batch import BlamedBatch
from safelight.record.fact_encoding import replace_nonfinite
from safelight.words import round_number

Severity = Literal["error", "warning", "info"]
Safety = Literal["safe", "unsafe", "manual"]
ORDER: tuple[Severity, ...] = ("error", "warning", "info")


def urgency(ended_at: int | None, severity: Severity, step: int) -> tuple[bool, int, int]:
    """What findings are sorted by: the worst first, then the earliest, and what is over last."""
    return ended_at is not None, ORDER.index(severity), step


def subsystem_of(cause: str) -> str:
    return cause.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that proves it, or a range of steps of one signal."""

    signal: str
    value: float | str
    steps: tuple[int, int] | None = None
    healthy_range: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"signal": self.signal, "value": self.value, "steps": self.steps, "usual": self.healthy_range}

    def rounded(self) -> Evidence:
        return self if isinstance(self.value, str) else replace(self, value=round_number(self.value))


@dataclass(frozen=True, slots=True)
class Fix:
    text: str
    set: dict[str, Any] = field(default_factory=dict)
    """Settings that fix it, by their keys."""
    safety: Safety = "manual"
    """`safe`: cannot harm a run; `unsafe`: changes what is trained; `manual`: for a person to do."""

    def rounded(self) -> Fix:
        numbers = {key: round_number(value) if isinstance(value, float) else value for key, value in self.set.items()}
        return replace(self, set=numbers)


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    cause: str
    """A slug that begins with the subsystem: precision.scale-halving."""
    severity: Severity
    step: int
    """Since when."""
    confidence: float
    """1 for an exact identity; else one minus the chance of a false alarm."""
    summary: str
    evidence: tuple[Evidence, ...]
    fix: Fix
    ruled_out: tuple[str, ...] = ()
    """Similar causes that were checked, and why they do not apply."""
    over: int | None = None
    """The step from which on it is no longer true."""
    batch: BlamedBatch | None = None
    """That it is about, if it is known."""

    @property
    def subsystem(self) -> str:
        return subsystem_of(self.cause)

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        found["evidence"] = tuple(each.to_json() for each in self.evidence)
        found["subsystem"] = self.subsystem
        return replace_nonfinite(found, json.dumps)
