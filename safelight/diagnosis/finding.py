"""A finding: the cause by name, the readings that prove it, and what to do."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from safelight.record.fact_encoding import replace_nonfinite

Severity = Literal["error", "warning", "info"]
Safety = Literal["safe", "unsafe", "manual"]
ORDER: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that proves it, or a range of steps of one signal."""

    signal: str
    value: float | str
    steps: tuple[int, int] | None = None
    usual: str | None = None  # what a healthy run has there


@dataclass(frozen=True, slots=True)
class Fix:
    text: str
    set: dict[str, Any] = field(default_factory=dict)
    """Settings that cure it, by their keys."""
    safety: Safety = "manual"
    """`safe`: cannot harm a run; `unsafe`: changes what is trained; `manual`: only a person can do it."""


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    cause: str
    """A slug that begins with the subsystem: precision.scale-halving."""
    severity: Severity
    step: int
    """Since when."""
    confidence: float
    """1 for an exact identity; else one minus the chance of a false alarm, as far as it is known."""
    summary: str
    evidence: tuple[Evidence, ...]
    fix: Fix
    ruled_out: tuple[str, ...] = ()
    """Look-alikes that were looked at, and why they are not it."""
    over: int | None = None
    """The step since which it is no longer true."""

    @property
    def subsystem(self) -> str:
        return self.cause.partition(".")[0]

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        found["subsystem"] = self.subsystem
        return replace_nonfinite(found, json.dumps)
