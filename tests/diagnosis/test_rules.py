"""Every rule on hand-written histories: sick, healthy and nearly sick."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.diagnosis.case import Case
from safelight.diagnosis.doctor import examine, explain
from safelight.diagnosis.rules import RULES
from safelight.errors import UsageError
from safelight.record.notes import Note

STEPS = np.arange(128)


class Told:
    """A record of a few lists."""

    def __init__(
        self, series: Mapping[str, tuple[Any, Any]], events: Sequence[tuple[int, str, dict[str, Any]]] = ()
    ) -> None:
        self._series, self._events = series, events

    def signals(self) -> list[str]:
        return sorted(self._series)

    def raw(self, signal: str, first: int | None = None, last: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        steps, numbers = self._series.get(signal, ([], []))
        return np.asarray(steps, np.int64), np.asarray(numbers, np.float32)

    def events(self, kind: str | None = None) -> list[Note]:
        return [Note(step, 0.0, name, facts) for step, name, facts in self._events if kind in (None, name)]


def healthy(**changes: tuple[Any, Any]) -> dict[str, tuple[Any, Any]]:
    """What a run of 128 steps records when nothing is wrong with it; `/` is written as `__`."""
    deep = np.arange(0, 128, 64)
    series: dict[str, tuple[Any, Any]] = {
        "loss/mean": (STEPS, 1 / (1 + STEPS)),
        "gradient/norm": (STEPS, np.full(128, 0.3)),
        "gradient/part/conv_in": (STEPS, np.where(STEPS == 0, 0.0, 0.2)),  # an output layer of zeros
        "gradient/part/conv_out": (STEPS, np.full(128, 0.2)),
        "optimizer/lr": (STEPS, np.full(128, 1e-3)),
        "update/ratio/conv_in": (deep, [0.0, 1e-3]),
        "update/ratio/conv_out": (deep, [1e-3, 1e-3]),
        "update/refused": (STEPS, np.zeros(128)),
        "precision/scale": (STEPS, np.ones(128)),
        "speed/data_wait": (np.arange(0, 128, 16), np.full(8, 0.01)),
        "copies/share": ([31, 63, 127], [0.0, 0.004, 0.0]),
        "copies/chance": ([31, 63, 127], [1.0, 0.3, 1.0]),
    }
    return series | {name.replace("__", "/"): value for name, value in changes.items()}


def refusals(steps: Sequence[int], *, overflow: bool = False) -> list[tuple[int, str, dict[str, Any]]]:
    return [(step, "refused", {"overflow": overflow, "nonfinite_gradients": ["conv_in.weight"]}) for step in steps]


def flagged(steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    return STEPS, np.isin(STEPS, steps).astype(float)


STILL = {"update__ratio__conv_in": ([0, 64], [0, 0]), "update__ratio__conv_out": ([0, 64], [0, 0])}
WAITS = np.arange(0, 128, 16)
LONG = {"ema.kind": "exponential", "ema.warmup": False, "ema.decay": 0.9999}
CASES: list[tuple[str, dict[str, Any], list[Any], dict[str, Any], list[str]]] = [
    ("healthy", {}, [], {}, []),
    ("nothing recorded yet", {"only": {}}, [], {}, []),
    # loss.nonfinite
    ("one refused update", {"update__refused": flagged([40])}, refusals([40]), {}, ["loss.nonfinite"]),
    ("stopped", {"update__refused": flagged([120, 121])},
     [*refusals([120, 121]), (121, "stopped", {"first_nonfinite": "the output of mid_block"})], {}, ["loss.nonfinite"]),
    ("a foreign loop", {}, [(9, "nonfinite", {"parameters": ["body.bias"], "count": 1})], {}, ["loss.nonfinite"]),
    ("fp16 looks for its scale", {"update__refused": flagged(range(12))}, refusals(range(12), overflow=True), {}, []),
    # precision.scale-halving
    ("halved without end", {"update__refused": flagged(range(60, 128))}, refusals(range(60, 128), overflow=True), {},
     ["precision.scale-halving"]),
    ("a foreign scaler without end", {"update__refused": flagged(range(60, 128))}, [], {}, ["precision.scale-halving"]),
    ("halved nine times of twenty", {"update__refused": flagged(range(119, 128))},
     refusals(range(119, 128), overflow=True), {}, []),
    # model.no-gradient, model.detached
    ("a part without gradient", {"gradient__part__time": (STEPS, np.zeros(128))}, [], {}, ["model.no-gradient"]),
    ("a part that wakes up late", {"gradient__part__time": (STEPS, (STEPS > 20) * 0.1)}, [], {}, []),
    ("too early to say",
     {"only": {"gradient/norm": (STEPS[:8], np.ones(8)), "gradient/part/a": (STEPS[:8], np.zeros(8))}}, [], {}, []),
    ("no gradient at all", {"gradient__norm": (STEPS, np.zeros(128)), "gradient__part__conv_in": (STEPS, np.zeros(128)),
     "gradient__part__conv_out": (STEPS, np.zeros(128)), "update__ratio__conv_in": ([0, 64], [0, 0]),
     "update__ratio__conv_out": ([0, 64], [0, 0])}, [], {}, ["model.detached"]),
    # optimizer.no-update
    ("weights stand still", STILL,
     [], {}, ["optimizer.no-update"]),
    ("one of two updates", STILL | {"update__ratio__conv_out": ([0, 64], [0, 1e-7])},
     [], {}, []),
    ("a learning rate of zero", STILL | {"optimizer__lr": (STEPS, np.zeros(128))}, [], {}, []),
    ("refused when it was looked at", {"update__ratio__conv_in": ([64], [0]), "update__ratio__conv_out": ([64], [0]),
     "update__refused": flagged([64])}, refusals([64]), {}, ["loss.nonfinite"]),
    # ema.too-long
    ("an average longer than the run", {}, [], LONG | {"train.steps": 2000}, ["ema.too-long"]),
    ("long enough", {}, [], LONG | {"train.steps": 60_000}, []),
    ("warmed up", {}, [], LONG | {"train.steps": 2000, "ema.warmup": True}, []),
    # generalisation.copies
    ("copies", {"copies__share": ([31, 127], [0, 0.08]), "copies__chance": ([31, 127], [1, 1e-6])}, [], {},
     ["generalisation.copies"]),
    ("a chance that many looks make likely", {"copies__share": ([31, 63, 127], [0, 0, 0.02]),
     "copies__chance": ([31, 63, 127], [1, 1, 0.002])}, [], {}, []),
    # system.starved-loader
    ("starved", {"speed__data_wait": (WAITS, [0.01, 0.01, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6])}, [], {},
     ["system.starved-loader"]),
    ("a slow start", {"speed__data_wait": (WAITS, [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.1, 0.1])}, [], {}, []),
]  # fmt: skip


def case_of(changes: dict[str, Any], events: list[Any], settings: dict[str, Any]) -> Case:
    series = changes["only"] if "only" in changes else healthy(**changes)
    config: Config | None = resolve(preset="digits", settings=settings) if settings else None
    return Case(Told(series, events), config)


@pytest.mark.parametrize(("name", "changes", "events", "settings", "causes"), CASES, ids=[row[0] for row in CASES])
def test_the_cause_is_named_and_nothing_else(
    name: str, changes: dict[str, Any], events: list[Any], settings: dict[str, Any], causes: list[str]
) -> None:
    found = examine(case_of(changes, events, settings))
    assert [finding.cause for finding in found] == causes
    for finding in found:
        json.dumps(finding.to_json(), allow_nan=False)
        assert finding.evidence
        assert finding.summary.endswith(".")
        assert 0 < finding.confidence <= 1
        rule = explain(finding.code)
        assert rule.cause == finding.cause


def test_every_rule_fires_in_some_row() -> None:
    told = {cause for row in CASES for cause in row[4]}
    assert {rule.cause for rule in RULES} == told


@pytest.mark.parametrize(
    ("name", "step", "over", "severity"),
    [("one refused update", 40, 41, "warning"), ("stopped", 120, 122, "error"), ("starved", 32, None, "warning"),
     ("copies", 127, None, "warning"), ("halved without end", 108, None, "error")],
)  # fmt: skip
def test_since_when_and_whether_it_is_over(name: str, step: int, over: int | None, severity: str) -> None:
    _, changes, events, settings, _ = next(row for row in CASES if row[0] == name)
    [finding] = examine(case_of(changes, events, settings))
    assert (finding.step, finding.over, finding.severity) == (step, over, severity)


def test_a_rule_that_breaks_is_told_and_the_others_are_asked() -> None:
    def break_down(_: Case) -> None:
        raise ZeroDivisionError("oh")

    broken = replace(RULES[0], look=break_down)
    found = examine(case_of({"gradient__part__time": (STEPS, np.zeros(128))}, [], {}), (broken, *RULES[1:]))
    assert [finding.cause for finding in found] == ["model.no-gradient", "loss.rule-broken"]
    assert "ZeroDivisionError: oh" in found[1].summary


def test_codes_and_causes_are_unique_and_pages_are_whole() -> None:
    assert len({rule.code for rule in RULES}) == len({rule.cause for rule in RULES}) == len(RULES)
    for rule in RULES:
        for text in (rule.what, rule.why, rule.alike, rule.misses, rule.fix):
            assert text.endswith("."), rule.code
    assert explain("los001") is RULES[0]
    with pytest.raises(UsageError, match=r"no finding 'LOS01'.*LOS001"):
        explain("LOS01")
