"""A rule: one cause, how it differs from similar ones, and a function of the history that detects it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Required, TypedDict, Unpack

from safelight.checks import ProbeReading
from safelight.diagnosis.advice import for_other_loop
from safelight.diagnosis.blamed_batch import batch_at
from safelight.diagnosis.finding import Evidence, Finding, Fix, Severity
from safelight.diagnosis.run_history import Episode, HealthyRanges, ReadingName, RunHistory, name_of
from safelight.diagnosis.spacing import LogNeed
from safelight.vocabulary import Signal


@dataclass(frozen=True, slots=True)
class Detection:
    """What a detector found, in addition to the rule's page."""

    step: int
    summary: str
    evidence: tuple[Evidence, ...] = ()
    ruled_out: tuple[str, ...] = ()
    confidence: float = 1.0
    severity: Severity | None = None
    """If it is not the rule's."""
    fix: Fix | None = None
    """If it is not the rule's."""
    ended_at: int | None = None
    """The step from which it is no longer true."""


Detector = Callable[[RunHistory], Detection | None]
CONFIG = "config"
UNPRINTED = ("detect", "logs", "unable")  # fields of a rule that are no text


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A need of more than one reading: with fewer, the rule can find nothing, and has not looked."""

    of: ProbeReading | Signal
    least: int
    since: int = 0
    """The first step at which they count."""


@dataclass(frozen=True, slots=True)
class CountAtLeast:
    """A need of a count that is recorded: as long as it is lower, the rule can find nothing, and has not looked."""

    of: ProbeReading
    least: int
    counted: str
    """What it counts."""


Need = ProbeReading | Signal | AtLeast | CountAtLeast | str
"""A check, a signal, a family of signals, several readings of one or a count; CONFIG for the settings of our own
runs."""


def needed(need: Need) -> str:
    """The name of a need in the record."""
    return name_of(need.of if isinstance(need, AtLeast | CountAtLeast) else need)


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
    """The readings it cannot do without; of an inner tuple any one is enough."""
    similar: str = ""
    """How it differs from what looks like it."""
    limits: str = ""
    severity: Severity = "error"
    default_fix: Fix = field(default_factory=lambda: Fix(""))
    """The fix of a finding; without a text, that of `fix`."""
    explained_by: str = ""
    """Beginnings of causes, separated by spaces: where one of them is found, this one is only its consequence. A star
    stands for every cause that has no star itself."""
    is_aftereffect: bool = False
    """What an error leaves behind: while this is found, the error that explains it stays open, though it ended."""
    logs: LogNeed | None = None
    """What it needs of a log that we did not write; None: no log can tell."""
    unable: Callable[[RunHistory], str | None] | None = None
    """Why it cannot look though all it needs was recorded; None: nothing more is needed."""

    @property
    def tells_outcome(self) -> bool:
        """Whether it says what has become of the run, whatever the cause."""
        return self.is_aftereffect or "*" in self.explained_by

    def find(self, run: RunHistory) -> Finding | None:
        detection = self.detect(run)
        if detection is None:
            return None
        fix = detection.fix or self.default_fix
        fix = (fix if fix.text else Fix(self.fix, fix.set, fix.safety)).rounded()
        return Finding(
            code=self.code,
            cause=self.cause,
            severity=detection.severity or self.severity,
            step=detection.step,
            confidence=detection.confidence,
            summary=detection.summary,
            # A record holds float32: 0.01 would be shown as 0.009999999776.
            evidence=tuple(each.rounded() for each in detection.evidence if _is_recorded(each)),
            fix=for_other_loop(fix) if run.config is None else fix,
            ruled_out=detection.ruled_out,
            over=detection.ended_at,
            batch=batch_at(run, detection.step),
        )

    def to_json(self) -> dict[str, Any]:
        """All but what detects it; needs by the names that are recorded."""
        page = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in UNPRINTED}
        needs = [list(map(needed, need)) if isinstance(need, tuple) else needed(need) for need in self.needs]
        return page | {
            "needs": needs,
            "default_fix": asdict(self.default_fix),
            "explained_by": self.explained_by.split(),
            "looks_at_logs": self.logs is not None,
        }


class Page(TypedDict, total=False):
    """What a rule says beside its heading: the fields of `Rule`."""

    what: Required[str]
    why: Required[str]
    fix: Required[str]
    detect: Required[Detector]
    needs: tuple[Need | tuple[Need, ...], ...]
    similar: str
    limits: str
    default_fix: Fix
    explained_by: str
    is_aftereffect: bool
    logs: LogNeed | None
    unable: Callable[[RunHistory], str | None] | None


def error_rule(code: str, cause: str, title: str, **page: Unpack[Page]) -> Rule:
    """A rule whose findings are errors, unless a detector says otherwise: `error_rule("EMA003", …, what="…")`."""
    return Rule(code, cause, title, **page)


def warning_rule(code: str, cause: str, title: str, **page: Unpack[Page]) -> Rule:
    """A rule whose findings are warnings, unless a detector says otherwise."""
    return Rule(code, cause, title, severity="warning", **page)


def _is_recorded(evidence: Evidence) -> bool:
    return isinstance(evidence.value, str) or not math.isnan(evidence.value) or evidence.steps is not None


def on_latest(
    evidence: HealthyRanges,
    is_wrong: Callable[..., bool],
    summary: str | Callable[..., str],
    *ruled_out: str,
    also: tuple[ReadingName, ...] = (),
    step: int | None = None,
    confidence: float = 1.0,
) -> Detector:
    """Detects by the last numbers of some readings, which `is_wrong` and `summary` are given: those of `evidence`, then
    those that are needed as well. Where one of them was not recorded, there is no detection. A recorded number may be
    NaN, which passes no comparison: `not share <= 0.1` detects it, `share > 0.1` does not."""
    readings = (*evidence, *also)
    describe = summary.format if isinstance(summary, str) else summary

    def detect(run: RunHistory) -> Detection | None:
        numbers = [run.latest(reading) for reading in readings]
        if not all(len(run.steps(reading)) for reading in readings) or not is_wrong(*numbers):
            return None
        since = run.latest_step(readings[0]) if step is None else step
        return Detection(since, describe(*numbers), run.evidence_of(evidence), ruled_out, confidence)

    return detect


def on_episode(
    find: Callable[[RunHistory], Episode | None],
    summary: str | Callable[[RunHistory, Episode], str],
    *ruled_out: str,
    evidence: HealthyRanges | None = None,
    latest: HealthyRanges | None = None,
    can_end: bool = True,
    fix: Fix | None = None,
) -> Detector:
    """Detects the episode that `find` returns, with `evidence` of its last step and the `latest` of other readings.
    A text is formatted with the last numbers of all these, and the `episode`. Where it cannot end, the cause is still
    there after it. `fix`: if it is not the rule's."""
    during, after = evidence or {}, latest or {}

    def detect(run: RunHistory) -> Detection | None:
        if (episode := find(run)) is None:
            return None
        if isinstance(summary, str):
            text = summary.format(*map(run.latest, (*during, *after)), episode=episode)
        else:
            text = summary(run, episode)
        found = run.evidence_of(during, episode.last) + run.evidence_of(after)
        return Detection(episode.first, text, found, ruled_out, fix=fix, ended_at=episode.ended_at if can_end else None)

    return detect


def on_count(check: ProbeReading, least: int, summary: str, *ruled_out: str) -> Detector:
    """Detects that a check, which is recorded only for hits, has some; `summary` is formatted with their number."""

    def detect(run: RunHistory) -> Detection | None:
        steps = run.steps(check)
        if len(steps) < least:
            return None
        where = int(steps[0]), int(steps[-1])
        evidence = Evidence(name_of(check), float(len(steps)), where, "0")
        return Detection(where[0], summary.format(len(steps)), (evidence,), ruled_out)

    return detect


def first_of(*detectors: Detector) -> Detector:
    """What the first of them detects that detects anything."""
    return lambda run: next((found for detect in detectors if (found := detect(run)) is not None), None)
