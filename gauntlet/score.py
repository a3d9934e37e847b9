"""How well faults were found and named: counts, bounds, and a list of what was missed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gauntlet.baselines import RULES
from gauntlet.scenario import Detection, Verdict
from safelight.diagnosis.finding import subsystem_of

ALARMS = ("error", "warning")


@dataclass(frozen=True)
class Judged:
    """One faulty run, compared with its twin."""

    verdict: Verdict
    detected: bool
    top1: bool
    top3: bool
    subsystem: bool
    latency: int | None
    """Steps from the fault to the first look that showed an accepted cause or, if there is none, any alarm."""
    before_update: bool
    named: str | None
    """The first cause that was named."""


@dataclass(frozen=True)
class Share:
    count: int
    of: int

    @property
    def value(self) -> float:
        return self.count / self.of if self.of else math.nan

    @property
    def bounds(self) -> tuple[float, float]:
        return wilson(self.count, self.of)

    def __str__(self) -> str:
        if not self.of:
            return "–"
        low, high = self.bounds
        return f"{self.count} of {self.of} = {self.value:.1%} ({low:.1%} to {high:.1%})"


def wilson(count: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % bounds of a share (Wilson 1927)."""
    if not of:
        return 0.0, 1.0
    share, squared = count / of, z * z / of
    centre = (share + squared / 2) / (1 + squared)
    half = z * math.sqrt(share * (1 - share) / of + squared / of / 4) / (1 + squared)
    return max(0.0, centre - half), min(1.0, centre + half)


def rule_of_three(of: int) -> float:
    """The upper 95 % bound of a share of which none was seen."""
    return 1 - 0.05 ** (1 / of) if of else 1.0


def alarms(verdict: Verdict) -> list[Detection]:
    return [found for found in verdict.findings if found["severity"] in ALARMS]


def judge(verdict: Verdict, twin: Verdict | None) -> Judged:
    """What the healthy twin has too is no detection. A double fault is named if the first two name both."""
    common = {found["cause"] for found in alarms(twin)} if twin is not None else set()
    said = [found["cause"] for found in alarms(verdict) if found["cause"] not in common]
    looks = [verdict.looks[cause] for cause in said if cause in verdict.looks]
    right = [verdict.looks[cause] for cause in said if cause in verdict.looks and _accepted(cause, verdict.causes)]
    seen = min(right or looks, default=None)
    return Judged(
        verdict,
        detected=bool(said),
        top1=_names_all(said[: len(verdict.causes)], verdict.causes),
        top3=_names_all(said[: len(verdict.causes) + 2], verdict.causes),
        subsystem=bool(said) and subsystem_of(said[0]) in _subsystems(verdict.causes),
        latency=None if seen is None else max(0, seen - verdict.begin),
        before_update=verdict.preflight or (seen is not None and seen <= 1 and not verdict.begin),
        named=said[0] if said else None,
    )


def _accepted(cause: str, causes: Iterable[Sequence[str]]) -> bool:
    return any(cause in each for each in causes)


def _names_all(said: Sequence[str], causes: Iterable[Sequence[str]]) -> bool:
    return all(any(cause in each for cause in said) for each in causes)


def _subsystems(causes: Iterable[Sequence[str]]) -> set[str]:
    return {subsystem_of(cause) for each in causes for cause in each}


@dataclass(frozen=True)
class Score:
    judged: tuple[Judged, ...]
    healthy: tuple[Verdict, ...]
    """Healthy recipes, and twins."""

    def share(self, what: str) -> Share:
        return Share(sum(bool(getattr(each, what)) for each in self.judged), len(self.judged))

    def by_fault(self, what: str) -> Share:
        """A fault counts where it succeeded in most of its runs: runs of one fault are not independent."""
        groups: dict[str, list[bool]] = defaultdict(list)
        for each in self.judged:
            groups[each.verdict.id.split("@")[0].split(",")[0]].append(bool(getattr(each, what)))
        return Share(sum(sum(group) * 2 > len(group) for group in groups.values()), len(groups))

    @property
    def false_alarms(self) -> list[Verdict]:
        return [verdict for verdict in self.healthy if alarms(verdict)]

    @property
    def false_alarm_bound(self) -> float:
        """The upper 95 % bound of the chance that a healthy run is alarmed about."""
        count, of = len(self.false_alarms), len(self.healthy)
        return rule_of_three(of) if not count else wilson(count, of)[1]

    def within(self, steps: int) -> Share:
        """Seen at most so many steps after the fault began."""
        return Share(sum(each.latency is not None and each.latency <= steps for each in self.judged), len(self.judged))

    def misses(self) -> list[Judged]:
        return [each for each in self.judged if not each.top1]

    def confusions(self) -> dict[tuple[str, str], int]:
        """(exact cause, cause that was named instead) and how often."""
        found: dict[tuple[str, str], int] = defaultdict(int)
        for each in self.misses():
            found[each.verdict.causes[0][0], each.named or "nothing"] += 1
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def score(verdicts: Iterable[Verdict]) -> Score:
    verdicts = list(verdicts)
    twins = {verdict.key: verdict for verdict in verdicts if verdict.kind == "twin"}
    judged = [judge(v, twins.get((v.twin or "", v.base, v.seed))) for v in verdicts if v.kind == "faulty"]
    return Score(tuple(judged), tuple(v for v in verdicts if v.kind != "faulty"))


@dataclass(frozen=True)
class Baseline:
    name: str
    detected: Share
    top1: Share
    false_alarms: Share


def baselines(verdicts: Iterable[Verdict]) -> list[Baseline]:
    """Each rule of folklore alone, then all of them together, then the guess that it is always the rate."""
    verdicts = list(verdicts)
    sick, well = [v for v in verdicts if v.kind == "faulty"], [v for v in verdicts if v.kind != "faulty"]
    rows = []
    for name, (_, cause) in RULES.items():
        rows.append(_baseline(name, sick, well, lambda v, name=name: name in v.baselines, {cause}))
    rows.append(_baseline("any of them", sick, well, lambda v: bool(v.baselines), {c for _, c in RULES.values()}))
    rows.append(_baseline("always the rate", sick, well, lambda _: True, {"lr.too-high"}))
    return rows


def _baseline(
    name: str, sick: list[Verdict], well: list[Verdict], speaks: Callable[[Verdict], bool], causes: set[str]
) -> Baseline:
    named = sum(speaks(v) and _names_all(list(causes), v.causes) for v in sick)
    spoken, wrong = sum(speaks(v) for v in sick), sum(speaks(v) for v in well)
    return Baseline(name, Share(spoken, len(sick)), Share(named, len(sick)), Share(wrong, len(well)))
