"""How many rules had the readings they need, which readings the others lack, and what to pass for them."""

from __future__ import annotations

from typing import NamedTuple

from safelight.checks import Check
from safelight.diagnosis.rule import CONFIG, Need, Rule
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.run_history import RunHistory, name_of
from safelight.vocabulary import Signal

# What a loop passes to `watch` (with =) and to `watch.step` for the readings that begin like this. The first that fits.
PASSED = (
    ("check/schedule/", ("schedule=",)),
    ("check/data/", ("data=",)),
    ("check/sampler/", ("sampler=", "schedule=", "prediction=", "data=")),
    ("check/average/", ("ema=",)),
    ("check/target/declared", ("prediction=",)),
    ("check/target/", ("x0", "noise", "target", "t", "schedule=")),
    ("check/forward/", ("x0", "noise", "x_t", "t", "schedule=")),
    ("check/noise/", ("noise",)),
    ("check/stream/noise", ("noise",)),
    ("check/stream/times", ("t", "schedule=")),
    ("check/timesteps/", ("t",)),
    ("check/stream/labels", ("labels",)),
    ("check/stream/shown", ("labels",)),
    ("check/labels/", ("labels",)),
    ("check/stream/", ("x0",)),
    ("check/batch/", ("x0",)),
    ("check/finite/", ("x0", "pred")),
    ("check/loss/", ("pred", "target")),
    ("check/answer/", ("pred", "target")),
    ("check/search/", ("pred", "target")),
    ("check/replay/", ("pred", "target")),
    ("check/update/", ("optimizer=",)),
    ("check/optimizer/", ("optimizer=",)),
    ("optimizer/", ("optimizer=",)),
)
STEP_ORDER = ("x0", "noise", "x_t", "t", "target", "pred")
ORDER = (*STEP_ORDER, "optimizer=", "schedule=", "prediction=", "ema=", "data=", "sampler=")
OPTIONAL = ("labels",)  # not every model has them: not recommended


class Coverage(NamedTuple):
    rules: int
    """All of them."""
    looked: int
    """Rules that had all they need."""
    missing: dict[str, tuple[str, ...]]
    """By the code of every other rule: the names of what it lacks, as they would be recorded."""

    def words(self) -> str:
        return f"the {self.looked} of {self.rules} rules that had what they need"

    def advice(self) -> Advice | None:
        """What a watched loop should pass so that more rules can look; None where nothing would help."""
        wanted = set[str]()
        gained = 0
        for names in self.missing.values():
            arguments = [_arguments(name) for name in names]
            if all(arguments) and not any(each in OPTIONAL for group in arguments for each in group):
                gained += 1
                wanted.update(*arguments)
        return Advice(tuple(sorted(wanted, key=ORDER.index)), gained) if gained else None


class Advice(NamedTuple):
    arguments: tuple[str, ...]
    """Those with = for `safelight.watch`, the others for `watch.step`."""
    rules: int
    """How many more could look."""

    def words(self) -> str:
        step = [each for each in self.arguments if not each.endswith("=")]
        start = [each.removesuffix("=") for each in self.arguments if each.endswith("=")]
        parts = [
            f"{_listed(names)} to `{to}`" for names, to in ((step, "watch.step"), (start, "safelight.watch")) if names
        ]
        return f"Pass {' and '.join(parts)}, and {self.rules} more can look."


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _arguments(reading: str) -> tuple[str, ...]:
    """What makes a reading possible; nothing for one that only our own runs have."""
    return next((arguments for start, arguments in PASSED if reading.startswith(start)), ())


def coverage(run: RunHistory, rules: tuple[Rule, ...] = RULES) -> Coverage:
    recorded = set(run.readings.signals())
    found = {rule.code: _missing(rule, run, recorded) for rule in rules}
    missing = {code: names for code, names in found.items() if names}
    return Coverage(len(found), len(found) - len(missing), missing)


def _missing(rule: Rule, run: RunHistory, recorded: set[str]) -> tuple[str, ...]:
    groups = [need if isinstance(need, tuple) else (need,) for need in rule.needs]
    lacking = [group for group in groups if not any(_is_there(need, run, recorded) for need in group)]
    return tuple(name_of(need) for group in lacking for need in group)


def _is_there(need: Need, run: RunHistory, recorded: set[str]) -> bool:
    if need == CONFIG:
        return run.config is not None
    if isinstance(need, Signal) and need.family:
        return bool(run.parts(need))
    if isinstance(need, Check) and need.implied_by is not None and name_of(need.implied_by) in recorded:
        return True
    return name_of(need) in recorded
