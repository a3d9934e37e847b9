"""Every rule by name: found, passed, explained by another finding, or not looked at and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from safelight.checks import EMA_BETWEEN
from safelight.diagnosis.coverage import NO_LOG
from safelight.diagnosis.doctor import Diagnosis
from safelight.diagnosis.logs.readings import SIGNALS
from safelight.diagnosis.rule import CONFIG
from safelight.diagnosis.rules import RULES
from safelight.vocabulary import CHECK

State = Literal["found", "known", "explained", "passed", "not looked at"]
NOT_RECOGNISED = "what the network is shown was not recognised"
STATES: tuple[State, ...] = ("found", "known", "explained", "passed", "not looked at")
SHOWN = 3  # readings that are named
LOGGED = {signal.name for signal in SIGNALS.values()}
# What a script that is not edited did not show, by what a loop of one's own would pass; the first that lacks is named.
UNSEEN = {
    "optimizer=": "no optimizer was seen",
    "sampler=": "no sampler is known",
    "ema=": "no EMA was seen",
    "labels": "no labels were seen",
    "data=": "the data set as a whole is not known",
    "x0": NOT_RECOGNISED,
    "noise": NOT_RECOGNISED,
    "x_t": NOT_RECOGNISED,
    "t": NOT_RECOGNISED,
    "target": NOT_RECOGNISED,
    "pred": NOT_RECOGNISED,
    "process=": "no noise schedule was declared to compare with",
    "prediction=": "no prediction type was declared to compare with",
}
EMA_RULE = "EMA003"  # that looks wherever an EMA was seen
NO_SAMPLES, OF_OWN_RUNS = "no samples were drawn", "only runs of `safelight train` have it"
# The same by the area of a reading, for what a loop cannot pass; the first area that is lacking is named.
UNSEEN_AREAS = {
    "average": "no EMA was seen",
    "adapter": "no adapter was seen",
    **dict.fromkeys(("samples", "pictures", "quality", "diversity", "copies"), NO_SAMPLES),
    **dict.fromkeys((CONFIG, "checkpoint", "rows", "trial", "probe"), OF_OWN_RUNS),
    "distributed": "no other process was seen to compare with",
    **dict.fromkeys(("labels", "stream", "response", "conditions"), "no labels or other conditions were seen"),
}
NO_ACCUMULATION = "gradients are not accumulated: it cannot move between micro-batches"
# The same by the area of a reading and the beginning of its name, for what lacks beside others of its kind; the first
# that fits.
NOT_REPEATED = "the step could not be repeated: it is not known what its loss compares"
NOT_SEEN = "what it compares was not seen in these updates"
LACKING = (
    ("schedule", "", "no table of alphas_cumprod was seen"),
    ("network", "time_collision", "no layer was found that embeds the time alone"),
    ("network", "label", "no labels were seen"),
    ("network", "", "the network could not be called again with what it was shown"),
    ("data", "", "the data set as a whole is not known"),
    *((area, "", NOT_RECOGNISED) for area in ("batch", "noise", "forward", "mixture", "timesteps", "target")),
    *((area, "", NOT_REPEATED) for area in ("replay", "search")),
)


@dataclass(frozen=True, slots=True)
class ChecklistLine:
    code: str
    cause: str
    title: str
    state: State
    reason: str = ""


def checklist(diagnosis: Diagnosis, *, is_edited: bool = True) -> list[ChecklistLine]:
    """In the order of the rules. `is_edited`: the loop can pass more; a script that was only run cannot."""
    found = {finding.code: finding for finding in diagnosis.findings}
    known = {finding.code for finding in diagnosis.known}
    explained = {each.finding.code: each.by for each in diagnosis.explained}
    lines: list[ChecklistLine] = []
    for rule in RULES:
        state, reason = "passed", ""
        if rule.code in found and found[rule.code].cause != rule.cause:
            state, reason = "not looked at", found[rule.code].summary  # the rule failed
        elif rule.code in found:
            over = found[rule.code].over
            state, reason = "found", "" if over is None else f"over since step {over:,}"
        elif rule.code in known:
            state, reason = "known", "in the baseline"
        elif rule.code in explained:
            state, reason = "explained", f"by {', '.join(sorted(explained[rule.code]))}"
        elif rule.code in diagnosis.coverage.unable:
            state, reason = "not looked at", diagnosis.coverage.unable[rule.code]
        elif rule.code in diagnosis.coverage.missing:
            state, reason = "not looked at", _lacking(diagnosis, rule.code, is_edited)
        lines.append(ChecklistLine(rule.code, rule.cause, rule.title, state, reason))
    return lines


def _lacking(diagnosis: Diagnosis, code: str, is_edited: bool) -> str:
    names = diagnosis.coverage.missing[code]
    if diagnosis.log is not None:
        logged = [name for name in names if name in LOGGED]
        return f"the log has no {logged[0]}" if logged else NO_LOG
    arguments = diagnosis.coverage.arguments.get(code)
    if not is_edited:
        areas = {name.removeprefix(f"{CHECK.name}/").partition("/")[0] for name in diagnosis.coverage.missing[code]}
        if names == (f"{CHECK.name}/{EMA_BETWEEN}",) and EMA_RULE not in diagnosis.coverage.missing:
            return NO_ACCUMULATION
        unseen = (reason for name, reason in UNSEEN.items() if name in (arguments or ()))
        unseen_areas = (reason for area, reason in UNSEEN_AREAS.items() if area in areas)
        if reason := next(unseen, None) or next(unseen_areas, None):
            return reason
        first = names[0].removeprefix(f"{CHECK.name}/")
        return next((words for area, start, words in LACKING if first.startswith(f"{area}/{start}")), NOT_SEEN)
    if arguments and diagnosis.watched:
        return f"pass {', '.join(each.removesuffix('=') for each in arguments)}"
    if names == (CONFIG,):
        return "only runs of Safelight have settings"
    return f"lacks {', '.join(names[:SHOWN])}" + (" …" if len(names) > SHOWN else "")


def count(lines: list[ChecklistLine]) -> str:
    """84 passed, 2 found, 47 not looked at."""
    counts = Counter(line.state for line in lines)
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])


def grouped(lines: Iterable[ChecklistLine]) -> dict[str, list[str]]:
    """Codes by reason, the most first."""
    found: dict[str, list[str]] = {}
    for each in lines:
        found.setdefault(each.reason, []).append(each.code)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def to_json(lines: Iterable[ChecklistLine]) -> list[dict[str, Any]]:
    return [asdict(line) for line in lines]
