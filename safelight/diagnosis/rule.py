"""A rule: one cause, how it differs from similar ones, and a function of the history that looks for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from safelight.checks import Check
from safelight.diagnosis.finding import Evidence, Finding, Fix, Severity
from safelight.diagnosis.run_history import Episode, Reading, RunHistory, name_of
from safelight.vocabulary import Signal


@dataclass(frozen=True, slots=True)
class Detection:
    """What a look found, in addition to the rule's page."""

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


Detector = Callable[[RunHistory], Detection | None]
HealthyRanges = Mapping[Reading, str | None]
"""Readings that are evidence, with what a healthy run has."""
CONFIG = "config"
Need = Check | Signal | str
"""A check, a signal or a family of signals; CONFIG for the settings of our own runs."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`safelight explain` and the docs print all of it."""

    code: str
    cause: str
    title: str
    what: str
    why: str
    """Why it is bad."""
    fix: str
    detect: Detector
    needs: tuple[Need | tuple[Need, ...], ...] = ()
    """What it cannot look without; of an inner tuple any one is enough."""
    similar: str = ""
    """How it differs from what looks like it."""
    limits: str = ""
    severity: Severity = "error"
    default_fix: Fix = field(default_factory=lambda: Fix(""))
    """The fix of a finding; without a text, that of `fix`."""
    explained_by: str = ""
    """Beginnings of causes, separated by spaces: where one of them is found, this one is only its consequence. A star
    stands for every cause that has no star itself."""

    def find(self, run: RunHistory) -> Finding | None:
        seen = self.detect(run)
        if seen is None:
            return None
        fix = seen.fix or self.default_fix
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
    """A reading that was not recorded is no evidence."""
    return isinstance(evidence.value, str) or not math.isnan(evidence.value) or evidence.steps is not None


def on_latest(
    check: Check, is_wrong: Callable[[float], bool], summary: str, usual: str, *ruled_out: str, step: int | None = None
) -> Detector:
    """A look at the last number of one check, which `summary` is formatted with."""

    def detect(run: RunHistory) -> Detection | None:
        if not len(run.steps(check)) or not is_wrong(value := run.latest(check)):
            return None
        since = run.latest_step(check) if step is None else step
        return Detection(since, summary.format(value), (run.evidence(check, usual),), ruled_out)

    return detect


def on_episode(
    run: RunHistory,
    episode: Episode | None,
    summary: str | Callable[[Episode], str],
    evidence: HealthyRanges,
    *ruled_out: str,
    latest: HealthyRanges | None = None,
    severity: Severity | None = None,
) -> Detection | None:
    """What was found for the time of a spell, with `evidence` of its last step and the `latest` of other readings."""
    if episode is None:
        return None
    found = [run.evidence(reading, usual, episode.last) for reading, usual in evidence.items()]
    found += [run.evidence(reading, usual) for reading, usual in (latest or {}).items()]
    text = summary if isinstance(summary, str) else summary(episode)
    return Detection(episode.first, text, tuple(found), ruled_out, severity=severity, over=episode.over)


def on_count(
    run: RunHistory, check: Check, summary: str, *ruled_out: str, severity: Severity | None = None
) -> Detection:
    """What was found where a check is recorded only for hits; `summary` is formatted with their number."""
    steps = run.steps(check)
    where = int(steps[0]), int(steps[-1])
    evidence = Evidence(name_of(check), float(len(steps)), where, "0")
    return Detection(where[0], summary.format(len(steps)), (evidence,), ruled_out, severity=severity)
