"""Runs all rules on the record of a run: while it trains, or afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from safelight.config.resolve import resolve
from safelight.diagnosis.convergence import Progress, progress
from safelight.diagnosis.coverage import Coverage, coverage
from safelight.diagnosis.finding import ORDER, Evidence, Finding, Fix, subsystem_of, urgency
from safelight.diagnosis.logs.reader import is_log, read_log
from safelight.diagnosis.logs.readings import LogSummary
from safelight.diagnosis.rule import Rule
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.rules.samples import describe_samples
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory
from safelight.diagnosis.symptoms import SYMPTOMS, Symptom, find_symptoms
from safelight.diagnosis.verdict import SkillSummary, skill_summary, verdict
from safelight.errors import UsageError
from safelight.record.history import open_history
from safelight.run import RunFolder, open_recorded
from safelight.vocabulary import LOSS

CONSEQUENCE_LAG = 64  # steps: some causes are checked less often than their consequences


@dataclass(frozen=True, slots=True)
class Consequence:
    """A finding that is only the consequence of others."""

    finding: Finding
    by: frozenset[str]
    """Their codes."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the rules found, how many of them could look, and what the model is worth."""

    findings: list[Finding]
    """The worst first, and what is over last."""
    coverage: Coverage
    skill: SkillSummary | None = None
    watched: bool = False
    """A user's loop, which could pass more."""
    progress: Progress | None = None
    """Whether it has converged; None before anything is trained."""
    samples: str | None = None
    """What the newest samples are like; None before anything was drawn."""
    explained: tuple[Consequence, ...] = ()
    """What was found too, and is not reported."""
    log: LogSummary | None = None
    """What was read, where it is a log that we did not write."""
    known: tuple[Finding, ...] = ()
    """Findings that a baseline has: they were there before, and are not among the others."""

    @property
    def verdict(self) -> str:
        found = verdict(self.findings, self.coverage, self.skill, watched=self.watched)
        if self.known:
            count, found = len(self.known), found.replace("Nothing was found", "Nothing new was found", 1)
            found += (
                f" {count} finding{'s' * (count != 1)} of the baseline {'are' if count != 1 else 'is'} still there."
            )
        return found if self.log is None else f"{found} The others need the training itself."

    def to_json(self) -> dict[str, Any]:
        advice = self.coverage.advice() if self.watched else None
        missing = [] if advice is None else list(advice.arguments)
        return {
            "findings": [finding.to_json() for finding in self.findings],
            "verdict": self.verdict,
            "coverage": {"rules": self.coverage.rules, "looked": self.coverage.looked, "missing": missing},
            "progress": None if self.progress is None else self.progress.to_json(),
            "samples": self.samples,
            **({} if self.log is None else {"log": self.log.to_json()}),
            **({"known": [finding.to_json() for finding in self.known]} if self.known else {}),
        }


class Findings(list[Finding]):
    """The worst first; empty if nothing was found. How much that is worth, its verdict and coverage say; `progress`
    says whether the loss still falls."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.findings)
        self.verdict, self.coverage, self.progress = diagnosis.verdict, diagnosis.coverage, diagnosis.progress


def diagnose(run: str | Path | None = None, *, losses: Sequence[float] | None = None) -> Findings:
    """What is wrong with a run: `diagnose("runs/digits")`; with a log that any other tool wrote:
    `diagnose("lightning_logs/version_0")`; or with a loss curve from anywhere, one loss for each step:
    `diagnose(losses=[…])`. `.verdict` says it in words, with how many rules could look."""
    if run is not None and losses is None:
        return Findings(diagnose_log(run) if is_foreign(Path(run)) else diagnose_run(run))
    if losses is not None and run is None:
        return Findings(diagnose_losses(losses))
    raise UsageError("diagnose takes either a run or losses=, one loss for each step.")


def diagnose_losses(losses: Sequence[float]) -> Diagnosis:
    """By the rules that need nothing but the loss."""
    try:
        numbers = np.asarray(losses, np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError("losses should be numbers, one for each step.") from error
    if numbers.ndim != 1 or not len(numbers):
        raise UsageError(f"losses should be one number for each step; they have the shape {numbers.shape}.")
    broken = [(int(step), "nonfinite", {}) for step in np.flatnonzero(~np.isfinite(numbers))]
    readings = InMemoryReadings({LOSS.name: (np.arange(len(numbers)), numbers)}, broken)
    run = RunHistory(readings)
    found = examine(run)
    return Diagnosis(found, coverage(run), progress=progress(readings, advises=not _is_ill(found)))


def _is_ill(findings: Iterable[Finding]) -> bool:
    return any(each.over is None and each.severity != "info" for each in findings)


def is_foreign(path: Path) -> bool:
    """Whether a path is a log of somebody else, also where it lies in `runs`, as TensorBoard's do."""
    folder = RunFolder(path)
    return not (folder.record.is_file() or folder.config.is_file()) and is_log(path)


def diagnose_log(path: str | Path, loss: str | None = None) -> Diagnosis:
    """By the rules that its readings are enough for. `loss`: the column that is the loss."""
    log = read_log(Path(path), loss)
    run = RunHistory(log.readings, spacing=log.summary.spacing)
    looked = coverage(run)
    able = tuple(rule for rule in RULES if rule.code not in looked.missing and rule.code not in looked.unable)
    found, explained = examine_all(run, able)
    trend = progress(log.readings, advises=not _is_ill(found)) if log.summary.spacing.single else None
    return Diagnosis(found, looked, progress=trend, explained=explained, log=log.summary)


def diagnose_run(run: str | Path) -> Diagnosis:
    folder = open_recorded(Path(run))
    config = resolve(file=folder.config) if folder.config.is_file() else None
    with open_history(folder.record) as history:
        run_history = RunHistory(history, config, folder.status())
        skill = skill_summary(history)
        looked, samples = coverage(run_history), describe_samples(run_history)
        findings, explained = examine_all(run_history)
        converged = progress(history, advises=not _is_ill(findings))
        accepts_more_inputs = config is None and not run_history.status.get("captured")
        return Diagnosis(findings, looked, skill, accepts_more_inputs, converged, samples, explained)


def diagnose_trial(run: RunHistory) -> Diagnosis:
    """What is wrong at the end of a few trial steps, before anything is trained."""
    found, explained = examine_all(run)
    return Diagnosis([each for each in found if each.over is None], coverage(run), explained=explained)


def examine(run: RunHistory, rules: tuple[Rule, ...] = RULES) -> list[Finding]:
    """The worst first, and what is over last. One cause gives one finding: its consequences are not reported."""
    return examine_all(run, rules)[0]


def examine_all(run: RunHistory, rules: tuple[Rule, ...] = RULES) -> tuple[list[Finding], tuple[Consequence, ...]]:
    """The findings, and those that are only their consequences."""
    kept, explained = _without_consequences(_reopen(raised_by(run, rules)))
    return by_urgency(kept), explained


def by_urgency(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: urgency(finding.over, finding.severity, finding.step))


def raised_by(run: RunHistory, rules: tuple[Rule, ...] = RULES) -> list[tuple[Rule, Finding]]:
    """What each rule finds by itself, causes and consequences."""
    found: list[tuple[Rule, Finding]] = []
    for rule in rules:
        try:
            finding = rule.find(run)
        except Exception as error:  # a rule that fails must not stop the others
            finding = _broken(rule, error)
        if finding is not None:
            found.append((rule, finding))
    return found


def _reopen(found: list[tuple[Rule, Finding]]) -> list[tuple[Rule, Finding]]:
    """An error that ended is not over while the run has not recovered from it."""
    damages = [(rule, finding) for rule, finding in found if rule.tells_outcome and finding.over is None]

    def reopened(rule: Rule, finding: Finding) -> Finding:
        damage = next((damage for other, damage in damages if _explains(rule, finding, other, damage)), None)
        if finding.over is None or damage is None:
            return finding
        words = (
            f"The run has not recovered from steps {finding.step:,} to {finding.over:,}: {finding.summary} "
            f"{damage.summary}"
        )
        severity = min(finding.severity, damage.severity, key=ORDER.index)
        evidence = (*finding.evidence, *damage.evidence)
        return replace(finding, summary=words, over=None, severity=severity, evidence=evidence)

    return [(rule, reopened(rule, finding)) for rule, finding in found]


def _without_consequences(found: list[tuple[Rule, Finding]]) -> tuple[list[Finding], tuple[Consequence, ...]]:
    """Those that no other finding explains, and the others. Of those that explain each other in a circle, the worst is
    kept: a warning that came first may be a sign of it."""
    causes = [
        [j for j, (other, cause) in enumerate(found) if _explains(other, cause, rule, finding)]
        for rule, finding in found
    ]
    behind = [_reached(causes, place) for place in range(len(found))]
    kept: list[Finding] = []
    explained: list[Consequence] = []
    for place, (_, finding) in enumerate(found):
        circle = behind[place] | {place}
        first = min(circle, key=lambda i: (ORDER.index(found[i][1].severity), found[i][1].step, i))
        if first == place and all(place in behind[other] for other in behind[place]):
            outcomes = [
                each
                for (rule, each), causes in zip(found, behind, strict=True)
                if place in causes and rule.tells_outcome
            ]
            kept.append(_as_severe(finding, outcomes))
        else:
            explained.append(Consequence(finding, frozenset(found[i][1].code for i in behind[place] - {place})))
    return kept, tuple(explained)


def _as_severe(cause: Finding, outcomes: Iterable[Finding]) -> Finding:
    """A cause that is milder than what has become of the run is as severe, and says so, unless its own readings do."""
    worse = [each for each in outcomes if each.over is None and each.severity == "error"]
    if cause.severity == "error" or not worse:
        return cause
    outcome = min(worse, key=lambda each: each.step)
    if set(outcome.evidence) <= set(cause.evidence):
        return cause
    evidence = (*cause.evidence, *outcome.evidence)
    return replace(cause, severity="error", summary=f"{cause.summary} {outcome.summary}", evidence=evidence)


def _reached(causes: list[list[int]], place: int) -> set[int]:
    """The causes of a finding, their causes, and so on."""
    reached: set[int] = set()
    ahead = list(causes[place])
    while ahead:
        each = ahead.pop()
        if each not in reached:
            reached.add(each)
            ahead += causes[each]
    return reached


def _explains(other: Rule, cause: Finding, rule: Rule, finding: Finding) -> bool:
    """An earlier cause explains what came with it or after it; a later one does not."""
    if other is rule or cause.severity == "info" or cause.step > finding.step + CONSEQUENCE_LAG:
        return False
    if _has_outlived(finding, cause) or (other.is_aftereffect and not rule.is_aftereffect):
        return False  # damage, which is what is left of the model, is a consequence itself
    if rule.is_aftereffect and cause.over is not None and finding.step > cause.over + CONSEQUENCE_LAG:
        return False  # the run had recovered
    if "*" in rule.explained_by and "*" not in other.explained_by:
        return True
    return any(other.cause.startswith(start) for start in rule.explained_by.split() if start != "*")


def _has_outlived(finding: Finding, cause: Finding) -> bool:
    """Whether it is open though the other has ended, and began after that; what samples are like is seen anew in every
    picture."""
    if cause.over is None or finding.over is not None:
        return False
    return cause.subsystem == "generalisation" or finding.step > cause.over + CONSEQUENCE_LAG


def _broken(rule: Rule, error: Exception) -> Finding:
    return Finding(
        code=rule.code,
        cause=f"{subsystem_of(rule.cause)}.rule-broken",
        severity="info",
        step=0,
        confidence=0.0,
        summary=f"Rule {rule.code} failed ({type(error).__name__}: {error}). The other rules were checked.",
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
    symptoms = [each for symptom in SYMPTOMS for each in symptom.words.split("|")]
    near = nearest(code, symptoms)
    near = nearest(code, names) if near == "." else near
    raise UsageError(
        f"There is no finding or symptom {code!r}{near} `safelight explain` lists the findings, `safelight docs "
        "symptoms` "
        "the symptoms."
    )


def look_up(word: str) -> Rule | list[Symptom]:
    """What `explain` knows, or the symptoms that a word stands for."""
    is_rule = any(word.lower() in (rule.code.lower(), rule.cause) for rule in RULES)
    return explain(word) if is_rule else find_symptoms(word) or explain(word)
