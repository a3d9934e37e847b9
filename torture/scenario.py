"""The words of the suite: a scenario is a property and cases that try to break it; a control is one that must break."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SLOWEST = "slowest, in milliseconds of one core"


@dataclass(frozen=True, slots=True)
class Trial:
    """Some cases of a scenario. Whatever is random in a case is a function of the seed and its number."""

    seed: int
    cases: range
    folder: Path  # for this trial alone, empty at its start

    def draw(self, case: int) -> random.Random:
        return random.Random(f"{self.seed}/{case}")


@dataclass(slots=True)
class Outcome:
    """What came of a trial."""

    count: int = 0  # of what the scenario counts: kills, faults, inputs
    lost: list[tuple[int, str]] = field(default_factory=list)  # case, and in words what was lost
    tally: Counter[str] = field(default_factory=Counter)  # what else is worth telling
    finals: str = ""  # sha256 of what every run must end with
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Outcome:
        lost = [(case, words) for case, words in found["lost"]]
        return Outcome(found["count"], lost, Counter(found["tally"]), found["finals"], found["seconds"])


Act = Callable[[Trial], Outcome]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A property with its trials; with a `symptom` it is a control, which has to be lost, and in these words."""

    name: str
    deed: str  # what is done
    unit: str  # what is counted
    wanted: int  # of them, at least
    cases: int  # of the whole suite
    quick: int  # of `--quick`
    piece: int  # cases that share a process
    act: Act
    least: Mapping[str, int] = field(default_factory=dict)  # of the tally
    symptom: str = ""
    alike: bool = True  # whether all its runs end with the same bytes

    @property
    def is_control(self) -> bool:
        return bool(self.symptom)


def merge(outcomes: list[Outcome], *, alike: bool = True) -> Outcome:
    """Pieces of one scenario as one; finals that differ between them are a loss where they should be `alike`."""
    finals = sorted({each.finals for each in outcomes} - {""})
    whole = Outcome(finals=finals[0] if len(finals) == 1 else hashlib.sha256(" ".join(finals).encode()).hexdigest())
    whole.finals = whole.finals if finals else ""
    slowest = max((each.tally[SLOWEST] for each in outcomes), default=0)
    for each in outcomes:
        whole.count += each.count
        whole.lost += each.lost
        whole.tally += each.tally
        whole.seconds += each.seconds
    if slowest:
        whole.tally[SLOWEST] = slowest
    if alike and len(finals) > 1:
        whole.lost.append((-1, f"{len(finals)} kinds of final bytes where there must be one: {', '.join(finals)}"))
    return whole


def shortfall(scenario: Scenario, found: Outcome) -> list[str]:
    """What is missing of what was wanted, in words."""
    counts = {scenario.unit: (found.count, scenario.wanted)}
    counts |= {name: (found.tally[name], least) for name, least in scenario.least.items()}
    return [f"{have:,} {name}, {least:,} wanted" for name, (have, least) in counts.items() if have < least]


def is_as_wanted(scenario: Scenario, found: Outcome) -> bool:
    """A property loses nothing; a control does, with its own symptom and not because it could not start."""
    if scenario.is_control:
        return any(scenario.symptom in words for _, words in found.lost)
    return found.count > 0 and not found.lost
