"""A rule: one disease, how it is told from its look-alikes, and a function of the history that looks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from safelight.diagnosis.case import Case
from safelight.diagnosis.finding import Finding


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
    look: Callable[[Case], Finding | None]
