"""What a rule needs is what it cannot look without, and coverage counts by it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from histories import HEALTHY, LABELS, Series, checks, measured
from rule_rows import Row, every_row, history_of

from safelight.checks import (
    DATA_BLANK,
    FORWARD_WRONG,
    LOSS_MSE,
    SAMPLE_PARAMETER_CHANGED,
    SAMPLE_PARAMETER_MOVED,
    SAMPLER_FINITE,
    ProbeReading,
)
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.diagnosis.coverage import COUNTED, coverage
from safelight.diagnosis.rule import CONFIG, AtLeast, CountAtLeast, Need, Rule, needed
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory
from safelight.vocabulary import LOSS, SKILL_EMA, SKILL_HELD_OUT, SKILL_RAW, UPDATE_RATIO, Signal


class Recording(InMemoryReadings):
    """Remembers which readings were asked for."""

    def __init__(self, *history: Any) -> None:
        super().__init__(*history)
        self.read: set[str] = set()

    def raw(self, signal: str, first: int | None = None, last: int | None = None) -> Any:
        self.read.add(signal)
        return super().raw(signal)


def fires(rule: Rule, series: Series, events: Any = (), config: Config | None = None) -> bool:
    return rule.find(RunHistory(InMemoryReadings(series, events), config)) is not None


def groups_of(rule: Rule) -> list[tuple[Need, ...]]:
    return [need if isinstance(need, tuple) else (need,) for need in rule.needs]


def severals_of(rule: Rule) -> list[AtLeast]:
    return [need for group in groups_of(rule) for need in group if isinstance(need, AtLeast)]


def without(series: Series, names: Iterable[str]) -> Series:
    return {name: value for name, value in series.items() if not any(f"{name}/".startswith(f"{n}/") for n in names)}


@cache
def runs() -> list[tuple[Row, RunHistory]]:
    """Every row, read once for all rules."""
    histories = [(each, *history_of(each)) for each in every_row()]
    return [(each, RunHistory(InMemoryReadings(series, each.events), config)) for each, series, config in histories]


@cache
def fired(code: str) -> list[Row]:
    """The rows in which the rule fires, also where another finding explains it."""
    rule = next(rule for rule in RULES if rule.code == code)
    return [row for row, run in runs() if rule.find(run) is not None]


def area_of(name: str) -> str:
    """Readings of one probe are recorded together."""
    return name.rpartition("/")[0] if name.startswith("check/") else name


def silenced(rule: Rule, group: tuple[Need, ...]) -> bool:
    """Whether the rule is silent in all its rows without any reading of the group, the events and the config aside."""
    names = [needed(need) for need in group]
    for row in fired(rule.code):
        series, config = history_of(row)
        if fires(rule, without(series, names), (), None if CONFIG in group else config):
            return False
    return True


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_is_silent_without_what_it_needs(rule: Rule) -> None:
    assert fired(rule.code)
    assert not fires(rule, {})
    for group in groups_of(rule):
        assert silenced(rule, group), [needed(need) for need in group]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_that_fires_had_what_it_needs(rule: Rule) -> None:
    for row in fired(rule.code):
        series, config = history_of(row)
        reads = [name for name, value in series.items() if len(value[0])]
        proven = any(note[1] in ("no_update", "refused", "nonfinite") for note in row.events)  # an event is enough
        run = RunHistory(InMemoryReadings({name: series[name] for name in reads}), config)
        assert proven or coverage(run, (rule,)).looked, row.name


def shortened(series: Series, needs: Iterable[AtLeast]) -> Series:
    """One reading fewer than each of these needs takes."""
    most = {needed(each): each.least - 1 for each in needs}
    return {name: tuple(part[: most.get(name)] for part in value) for name, value in series.items()}  # type: ignore[misc]


@pytest.mark.parametrize("rule", [rule for rule in RULES if severals_of(rule)], ids=lambda rule: rule.code)
def test_with_fewer_readings_a_rule_finds_nothing_and_has_not_looked(rule: Rule) -> None:
    for group in groups_of(rule):
        several = [need for need in group if isinstance(need, AtLeast)]
        others = [needed(need) for need in group if not isinstance(need, AtLeast)]
        others += [
            needed(need.implied_by) for need in group if isinstance(need, ProbeReading) and need.implied_by is not None
        ]
        if not several:
            continue
        for row in fired(rule.code):
            series, config = history_of(row)
            short = shortened(without(series, others), several)
            config = None if CONFIG in group else config
            assert not fires(rule, short, (), config), row.name
            assert not coverage(RunHistory(InMemoryReadings(short), config), (rule,)).looked, row.name


def read_by(rule: Rule, row: Row) -> set[str]:
    """The recorded readings that the rule reads."""
    series, config = history_of(row)
    recording = Recording(series, row.events)
    rule.find(RunHistory(recording, config))
    return recording.read & series.keys()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_record_may_lack_any_reading(rule: Rule) -> None:
    """Of a damaged record: the rule does not break, whichever reading it lacks."""
    for row in fired(rule.code):
        series, config = history_of(row)
        for name in read_by(rule, row):
            fires(rule, without(series, [name]), row.events, config)


def unnamed(rule: Rule) -> set[str]:
    """What the rule reads in all its rows and is silent without, where its needs name no reading of the same probe."""
    essential: set[str] | None = None
    for row in fired(rule.code):
        series, config = history_of(row)
        areas = {area_of(name) for name in read_by(rule, row)}
        found = {area for area in areas if not fires(rule, without(series, [area]), row.events, config)}
        essential = found if essential is None else essential & found
    named = {area_of(needed(need)) for group in groups_of(rule) for need in group}
    return {area for area in essential or () if not any(f"{area}/".startswith(f"{name}/") for name in named)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_needs_are_complete(rule: Rule) -> None:
    assert unnamed(rule) == set()


def rule_with(*needs: Any) -> Rule:
    return Rule("XXX001", "x.y", "", "", "", "", lambda _: None, needs=needs)


@pytest.mark.parametrize(
    ("needs", "series", "missing"),
    [
        ((), {}, ()),
        ((LOSS_MSE,), {}, ("check/loss/error",)),
        ((LOSS_MSE,), checks(loss__error=1), ()),
        ((LOSS_MSE, LOSS), checks(loss__error=1), ("loss/mean",)),
        (((LOSS_MSE, LOSS),), checks(loss__error=1), ()),
        (((LOSS_MSE, LOSS),), checks(loss__zero=1), ("check/loss/error", "loss/mean")),
        ((UPDATE_RATIO,), measured(update__ratio__conv_in=([0], [1])), ()),
        ((UPDATE_RATIO,), measured(update__refused=([0], [1])), ("update/ratio",)),
        (
            (SAMPLE_PARAMETER_CHANGED,),
            checks(sentinel__moved=1),
            (),
        ),  # recorded only where it happened
        ((SAMPLE_PARAMETER_MOVED,), checks(sentinel__changed=1), ("check/sentinel/moved",)),
        ((CONFIG,), checks(loss__error=1), ("config",)),
    ],
)
def test_coverage_of_one_rule(needs: tuple[Any, ...], series: Series, missing: tuple[str, ...]) -> None:
    found = coverage(RunHistory(InMemoryReadings(series)), (rule_with(*needs),))
    looked, lacking = found.looked, found.missing
    assert (looked, lacking) == ((0, {"XXX001": missing}) if missing else (1, {}))


@pytest.mark.parametrize(
    ("need", "words"),
    [
        (AtLeast(LOSS_MSE, 3), None),
        (AtLeast(LOSS_MSE, 4), "needs 4 errors of predictions; there are 3"),
        (AtLeast(LOSS_MSE, 1, since=64), None),
        (AtLeast(LOSS_MSE, 2, since=64), "needs 2 errors of predictions from step 64 on; there are 1"),
        (CountAtLeast(LOSS_MSE, 640, "samples"), None),
        (CountAtLeast(LOSS_MSE, 641, "samples"), "needs 641 samples; there are 640"),
    ],
)
def test_what_was_seen_too_rarely_too_early_or_too_little_was_not_looked_at(need: Need, words: str | None) -> None:
    run = RunHistory(InMemoryReadings(checks(loss__error=([0, 16, 64], [32, 320, 640]))))
    assert dict(coverage(run, (rule_with(need),)).unable) == ({} if words is None else {"XXX001": words})


@pytest.mark.parametrize("need", sorted({needed(each) for rule in RULES for each in severals_of(rule)}))
def test_what_is_needed_several_times_has_a_name_for_people(need: str) -> None:
    assert need in COUNTED


def test_coverage_of_runs() -> None:
    config = resolve(preset="digits")
    nothing = coverage(RunHistory(InMemoryReadings({})))
    assert (nothing.looked, len(nothing.missing)) == (1, len(RULES) - 1)  # events need no reading
    monitored = coverage(
        RunHistory(InMemoryReadings({n: v for n, v in HEALTHY.items() if not n.startswith("check/")}), config)
    )
    healthy = coverage(RunHistory(InMemoryReadings(HEALTHY), config))
    labelled = coverage(RunHistory(InMemoryReadings(HEALTHY | LABELS), config))
    assert nothing.looked < monitored.looked < healthy.looked < labelled.looked <= len(RULES)
    assert all(
        len(each.missing) + len(each.unable) == len(RULES) - each.looked for each in (monitored, healthy, labelled)
    )
    assert healthy.missing["DST001"] == ("distributed/drift",)


def test_the_control_of_needs_can_fail() -> None:
    """A need that is not one, and a need that is left out, are seen."""
    blank = next(rule for rule in RULES if rule.code == "DAT003")
    assert silenced(blank, (DATA_BLANK,))
    assert not silenced(blank, (LOSS_MSE,))
    assert unnamed(replace(blank, needs=())) == {"check/data"}


@pytest.mark.parametrize(
    ("recorded", "advice"),
    [
        (checks(), "Pass x0, noise, t and target to `watch.step` and process and prediction to `safelight.watch`"),
        (checks(target__sample=1.0), "Pass prediction to `safelight.watch`"),  # the target was passed
    ],
)
def test_only_what_was_not_passed_is_advised(recorded: Series, advice: str) -> None:
    rules = tuple(rule for rule in RULES if rule.code in ("TAR001", "DST001"))
    found = coverage(RunHistory(InMemoryReadings(recorded)), rules).advice()
    assert found is not None
    assert found.words().partition(", and ")[0] == advice


SKILLED = measured(skill__raw=([15, 31, 63], [0.1, 0.2, 0.3]))


@pytest.mark.parametrize(
    ("need", "recorded", "wanted"),
    [
        (SKILL_EMA, SKILLED, ("ema=",)),
        (SAMPLER_FINITE, {}, ("process=", "prediction=", "data=", "sampler=")),
        (SAMPLER_FINITE, SKILLED, ("sampler=",)),
        (SAMPLER_FINITE, checks(schedule__first=1.0, target__declared=0), ("data=", "sampler=")),
        (SAMPLER_FINITE, checks(schedule__first=1.0, data__lowest=-1.0), ("prediction=", "sampler=")),
        (FORWARD_WRONG, checks(schedule__first=1.0, noise__count=8), ("x0", "noise", "x_t", "t")),
    ],
)
def test_what_was_passed_is_not_advised_again(need: Any, recorded: Series, wanted: tuple[str, ...]) -> None:
    advice = coverage(RunHistory(InMemoryReadings(recorded)), (rule_with(need),)).advice()
    assert advice is not None
    assert advice.arguments == wanted


def test_what_lacks_beside_others_of_its_kind_is_not_advised() -> None:
    """It lacks for another reason than an argument."""
    for recorded, wanted in ({}, {"target", "pred"}), (checks(loss__zero=1.0), None):
        advice = coverage(RunHistory(InMemoryReadings(recorded)), (rule_with(LOSS_MSE),)).advice()
        assert (None if advice is None else set(advice.arguments)) == wanted


def test_labels_are_not_asked_of_a_loop_that_may_have_none() -> None:
    rules = tuple(rule for rule in RULES if rule.cause.startswith("conditioning."))
    found = coverage(RunHistory(InMemoryReadings({})), rules).advice()
    assert found is None or "labels" not in found.arguments


@pytest.mark.parametrize(
    ("signal", "wanted"),
    [
        (SKILL_RAW, ("process=", "prediction=", "data=")),
        (SKILL_EMA, ("process=", "prediction=", "ema=", "data=")),
        (SKILL_HELD_OUT, None),  # only our own runs hold images out
    ],
)
def test_data_is_advised_for_skill(signal: Signal, wanted: tuple[str, ...] | None) -> None:
    advice = coverage(RunHistory(InMemoryReadings({})), (rule_with(signal),)).advice()
    assert (None if advice is None else advice.arguments) == wanted
    known = RunHistory(InMemoryReadings({signal.name: ([15], [0.5])}))
    assert coverage(known, (rule_with(signal),)).advice() is None
