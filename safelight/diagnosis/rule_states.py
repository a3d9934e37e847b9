"""Every rule by name: passed, found, explained by a finding, or not looked at and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from safelight.diagnosis.doctor import Diagnosis, raised_by
from safelight.diagnosis.rule import CONFIG, Rule
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.run_history import RunHistory

State = Literal["found", "explained", "passed", "not looked at"]
OF_OWN_RUNS = "only runs of `safelight train` have it"
NO_SAMPLES = "no samples were drawn"
NOT_DECLARED = "no noise schedule was declared to compare with"
NOT_RECOGNISED = "what the network is shown was not recognised"
# By the beginning of the name of what a rule lacks: why a loop that was only looked at does not have it.
REASONS = (
    (CONFIG, OF_OWN_RUNS),
    ("check/checkpoint/", OF_OWN_RUNS),
    ("check/rows/", OF_OWN_RUNS),
    ("check/trial/", OF_OWN_RUNS),
    ("distributed/", OF_OWN_RUNS),
    ("probe/", OF_OWN_RUNS),
    ("check/sampler/", "no sampler is known"),
    ("check/samples/", NO_SAMPLES),
    ("check/pictures/", NO_SAMPLES),
    ("quality/", NO_SAMPLES),
    ("diversity/", NO_SAMPLES),
    ("copies/", NO_SAMPLES),
    ("check/average/", "no EMA was seen"),
    ("skill/", "skill was not measured"),
    ("check/data/", "the data set as a whole is not known"),
    ("check/schedule/", NOT_DECLARED),
    ("check/labels/", "no labels were seen"),
    ("check/network/label", "no labels were seen"),
    ("check/response/labels", "no labels were seen"),
    ("check/stream/labels", "no labels were seen"),
    ("check/stream/shown", "no labels were seen"),
    ("check/mixture/", NOT_RECOGNISED),
    ("check/noise/", NOT_RECOGNISED),
    ("check/forward/", NOT_DECLARED),
    ("check/target/", NOT_DECLARED),
    ("check/stream/times", NOT_DECLARED),
    ("check/timesteps/", NOT_DECLARED),
    ("check/batch/", "the clean images were not recognised"),
    ("check/accumulation/", "gradients are not accumulated"),
)


@dataclass(frozen=True, slots=True)
class RuleState:
    code: str
    cause: str
    title: str
    state: State
    reason: str = ""
    """Why it was not looked at, or the finding that explains it."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def list_rules(run: RunHistory, diagnosis: Diagnosis, rules: Sequence[Rule] = RULES) -> list[RuleState]:
    """In the order of the rules. A rule that fires as the consequence of another finding has not passed."""
    found = {finding.code for finding in diagnosis.findings}
    raised = {rule.code for rule, _ in raised_by(run, tuple(rules))}
    listed = []
    for rule in rules:
        state, reason = "passed", ""
        if rule.code in found:
            state = "found"
        elif rule.code in raised:
            state, reason = "explained", "a consequence of what was found"
        elif rule.code in diagnosis.coverage.missing:
            state, reason = "not looked at", reason_for(diagnosis.coverage.missing[rule.code])
        listed.append(RuleState(rule.code, rule.cause, rule.title, state, reason))
    return listed


def reason_for(missing: Sequence[str]) -> str:
    """Of the names of readings, as they would be recorded."""
    known = (reason for name in missing for start, reason in REASONS if name.startswith(start))
    return next(known, f"not measured: {', '.join(name.removeprefix('check/') for name in missing)}")


def grouped(states: Iterable[RuleState]) -> dict[str, list[str]]:
    """Codes by reason, the most first."""
    found: dict[str, list[str]] = {}
    for each in states:
        found.setdefault(each.reason, []).append(each.code)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))
