"""How many rules had the readings they need, which readings the others lack, and what to pass for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple

from safelight import checks
from safelight.checks import FORWARD_WRONG, ProbeReading
from safelight.diagnosis.rule import CONFIG, AtLeast, CountAtLeast, Need, Rule, needed
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.run_history import RunHistory, name_of
from safelight.vocabulary import (
    CHECK,
    DATA_WAIT,
    EMA_GAIN,
    FIXED_SET_LOSS_RAW,
    GRADIENT_NORM,
    HELD_OUT_GAP,
    HELD_OUT_LOSS_RAW,
    LEARNING_RATE,
    LOSS,
    REFUSED,
    SKILL_AT_LEVEL,
    SKILL_EMA,
    SKILL_FLOOR,
    SKILL_RAW,
    SLOWEST,
    Signal,
)

# What a loop passes to `watch` (with =) and to `watch.step`, by the area of a check and the beginning of its name.
PASSED = (
    ("schedule", "", "process="),
    ("data", "", "data="),
    ("sampler", "", "sampler= process= prediction= data="),
    ("average", "", "ema="),
    ("target", "declared", "prediction="),
    ("target", "", "x0 noise target t process="),
    ("forward", "", "x0 noise x_t t process="),
    ("mixture", "", "x0 noise x_t target t"),
    ("noise", "", "noise"),
    ("timesteps", "", "t"),
    ("stream", "noise", "noise"),
    ("stream", "times", "t process="),
    ("stream", "labels", "labels"),
    ("stream", "shown", "labels"),
    ("stream", "", "x0"),
    ("labels", "", "labels"),
    ("batch", "", "x0"),
    ("finite", "", "x0 pred"),
    ("loss", "", "pred target"),
    ("answer", "", "pred target"),
    ("search", "", "pred target"),
    ("replay", "", "pred target"),
    ("update", "", "optimizer="),
    ("optimizer", "", "optimizer="),
)
SKILL = "process= prediction= data="
PASSED_FOR_SIGNALS = {
    LEARNING_RATE.name: "optimizer=",
    SKILL_RAW.name: SKILL,
    SKILL_FLOOR.name: SKILL,
    SKILL_AT_LEVEL.name: SKILL,
    SKILL_EMA.name: f"{SKILL} ema=",
    HELD_OUT_LOSS_RAW.name: f"{SKILL} held_out=",
    HELD_OUT_GAP.name: f"{SKILL} held_out=",
    FIXED_SET_LOSS_RAW.name: f"{SKILL} held_out=",
}
STEP_ORDER = ("x0", "noise", "x_t", "t", "target", "pred")
ORDER = (*STEP_ORDER, "optimizer=", "process=", "prediction=", "ema=", "data=", "sampler=", "held_out=")
# What a capture reads in the place of something that is passed.
SEEN_INSTEAD = (name_of(checks.TARGET_OF_SCHEDULER), name_of(checks.MIXTURE_ROW))
LOOKS_AT_EMA = "looks at the EMA"
COUNTED = {
    LOSS.name: "losses",
    GRADIENT_NORM.name: "norms of the gradient",
    LEARNING_RATE.name: "learning rates",
    REFUSED.name: "updates",
    DATA_WAIT.name: "measurements of the time spent waiting for data",
    SLOWEST.name: "measurements of all processes",
    EMA_GAIN.name: "comparisons of the EMA with the weights",
    **dict.fromkeys((SKILL_RAW.name, SKILL_FLOOR.name), "measurements of the skill"),
    name_of(checks.LOSS_MSE): "errors of predictions",
    name_of(checks.LINE_SEARCH_RATIO["1"]): "updates that were tried in other lengths",
    name_of(checks.LABELS_GAIN): "comparisons with exchanged labels",
    name_of(checks.LABELS_EXPLAIN): "comparisons of labels with images",
    name_of(checks.CONDITIONS_GAIN): "comparisons with exchanged conditions",
    **{name_of(each): "batches" for each in (*checks.BATCH_MOMENTS, checks.BATCH_ABS_MAX)},
    **{name_of(each): "batches with conditions" for each in (checks.CONDITIONS_EMPTY, checks.CONDITIONS_CONSTANT)},
    **dict.fromkeys(map(name_of, (checks.EMA_DECAY, checks.EMA_MOVED, checks.EMA_SAME)), LOOKS_AT_EMA),
    **dict.fromkeys(map(name_of, (checks.EMA_COARSE, checks.EMA_COSINE)), LOOKS_AT_EMA),
}
"""What is counted where several readings are needed."""
NO_LOG = "needs the training itself: a log cannot tell"
OPTIONAL = ("labels", "held_out=")  # not every loop has them: not recommended


class Coverage(NamedTuple):
    rules: int
    """All of them."""
    looked: int
    """Rules that had all they need."""
    missing: dict[str, tuple[str, ...]]
    """By the code of every other rule: the names of what it lacks, as they would be recorded."""
    arguments: dict[str, tuple[str, ...]]
    """By the code of those that a loop could help: what it would have to pass."""
    unable: Mapping[str, str] = MappingProxyType({})
    """By the code of those that did not look for another reason: that reason."""

    def words(self) -> str:
        return f"the {self.looked} of {self.rules} rules that had what they need"

    def sentence(self) -> str:
        """Where something was found."""
        return f"{self.looked} of {self.rules} rules had what they need."

    def advice(self) -> Advice | None:
        """What a watched loop should pass so that more rules can look; None if nothing would help."""
        useful = [each for each in self.arguments.values() if not set(each) & set(OPTIONAL)]
        wanted = sorted(set().union(*useful), key=ORDER.index)
        return Advice(tuple(wanted), len(useful)) if useful else None


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


def _passed(recorded: Set[str], recorded_rows: Set[tuple[str, str, str]]) -> Set[str]:
    """Arguments of `watch` that were passed, or seen in the loop: readings that need nothing else are there."""
    single = {row[2] for row in recorded_rows if row[2].endswith("=") and " " not in row[2]}
    skill = any(name in recorded for name in (SKILL_RAW.name, SKILL_EMA.name))
    return single | (set(SKILL.split()) if skill else set[str]())


def _arguments(names: Sequence[str], recorded: Set[str], recorded_rows: Set[tuple[str, str, str]]) -> tuple[str, ...]:
    """What makes these readings possible, without what was passed; nothing where only our own runs have one of them, or
    where others of its kind were recorded (`recorded_rows`, the rows of those): then it lacks for another reason than
    an argument."""
    found: list[str] = []
    passed = _passed(recorded, recorded_rows)
    for name in [each for each in names if each not in SEEN_INSTEAD] or names:
        if name in PASSED_FOR_SIGNALS:
            found += PASSED_FOR_SIGNALS[name].split()
            break
        row = next((row for row in PASSED if _belongs(name, row)), None)
        if row is None or row in recorded_rows:
            return ()
        if row[0] == "schedule" and name_of(FORWARD_WRONG) in recorded:
            return ()  # the process is known: it has no table
        found += row[2].split()
    return tuple(each for each in dict.fromkeys(found) if each not in passed)


def _belongs(name: str, row: tuple[str, str, str]) -> bool:
    return name.startswith(f"{CHECK.name}/{row[0]}/{row[1]}")


def coverage(run: RunHistory, rules: tuple[Rule, ...] = RULES) -> Coverage:
    recorded = set(run.signals())
    probed = [each for each in recorded if each.startswith(f"{CHECK.name}/")]
    recorded_rows = {row for row in PASSED if any(_belongs(each, row) for each in probed)}
    found = {rule.code: _missing(rule, run, recorded) for rule in rules}
    missing = {code: names for code, names in found.items() if names}
    left_out = _left_out(missing, run)
    missing = {code: names for code, names in missing.items() if code not in left_out}
    able = [rule for rule in rules if rule.code not in missing and rule.code not in left_out]
    unable = left_out | {rule.code: reason for rule in able if (reason := _inability(rule, run))}
    helped = {code: _arguments(names, recorded, recorded_rows) for code, names in missing.items()}
    helped = {code: arguments for code, arguments in helped.items() if arguments}
    return Coverage(len(found), len(found) - len(missing) - len(unable), missing, helped, unable)


def _left_out(missing: Mapping[str, tuple[str, ...]], run: RunHistory) -> dict[str, str]:
    """Rules that nothing a loop passes could help: what they need is not measured of it, and why."""
    found: dict[str, str] = {}
    for note in run.events("left_out"):
        starts = tuple(map(str, note.facts.get("readings", ())))
        lacking = [code for code, names in missing.items() if any(name.startswith(starts) for name in names)]
        found |= dict.fromkeys(lacking, str(note.facts.get("reason")))
    return found


def _inability(rule: Rule, run: RunHistory) -> str | None:
    """Why a rule cannot look, though what it needs was recorded: not often enough, or in a log that is too coarse."""
    if run.spacing is not None and rule.logs is None:
        return NO_LOG
    few = next((few for need in rule.needs if (few := _too_few(need, run)) is not None), None)
    if few is None and rule.unable is not None:
        few = rule.unable(run)
    if few is not None or run.spacing is None or rule.logs is None:
        return few
    return rule.logs.lacking(run.spacing)


def _too_few(need: Need | tuple[Need, ...], run: RunHistory) -> str | None:
    """None where one of the alternatives has as many readings as it takes."""
    few, recorded = None, set(run.signals())
    for each in need if isinstance(need, tuple) else (need,):
        if words := _lacks(each, run):
            few = few or words
        elif _is_there(each, run, recorded):
            return None
    return few


def _lacks(need: Need, run: RunHistory) -> str:
    """What is too few of it, in words; nothing where it is enough."""
    if isinstance(need, CountAtLeast):
        count = run.latest(need.of, 0.0)
        return f"needs {need.least:,} {need.counted}; there are {count:,.0f}" if count < need.least else ""
    count = int((run.steps(need.of) >= need.since).sum()) if isinstance(need, AtLeast) else 0
    if not isinstance(need, AtLeast) or count >= need.least:
        return ""
    has = "there are" if run.spacing is None else "the log has"
    after = f" from step {need.since:,} on" if need.since else ""
    counted = COUNTED.get(needed(need), f"readings of {needed(need)}")
    return f"needs {need.least:,} {counted}{after}; {has} {count:,}"


def _missing(rule: Rule, run: RunHistory, recorded: set[str]) -> tuple[str, ...]:
    groups = [need if isinstance(need, tuple) else (need,) for need in rule.needs]
    lacking = [group for group in groups if not any(_is_there(need, run, recorded) for need in group)]
    return tuple(needed(need) for group in lacking for need in group)


def _is_there(need: Need, run: RunHistory, recorded: set[str]) -> bool:
    """Whether it was recorded at all; of several readings, whether there is one."""
    need = need.of if isinstance(need, AtLeast | CountAtLeast) else need
    if need == CONFIG:
        return run.config is not None
    if isinstance(need, Signal) and need.family:
        return bool(run.parts(need))
    if isinstance(need, ProbeReading) and need.implied_by is not None and name_of(need.implied_by) in recorded:
        return True
    return name_of(need) in recorded
