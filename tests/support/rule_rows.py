"""One history for each way that a rule can be right: sick, healthy and nearly sick. Each family keeps its own in
tests/diagnosis/rules."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from histories import HEALTHY, LABELS, STEPS, Event, Series, checks, measured

from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.diagnosis.doctor import examine, explain
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory


@dataclass(frozen=True)
class Row:
    """A history by its difference from a healthy one, and the causes that should be reported, the worst first."""

    name: str
    causes: tuple[str, ...] = ()
    series: Series = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    whole: bool = False
    """Whether `series` is all that was recorded."""
    wrong: str = ""
    """Why the rules do not do it yet."""
    severities: tuple[str, ...] = ()
    """One for each cause; empty where any will do."""
    planned: int | None = None
    """The steps that a loop of somebody else has passed."""


def row(name: str, causes: str = "", series: Series | None = None, **rest: Any) -> Row:
    """`causes` in one string, each with a severity where that matters: ema.too-long:info."""
    named = [each.partition(":") for each in causes.split()]
    return Row(
        name, tuple(cause for cause, _, _ in named), series or {}, severities=tuple(last for *_, last in named), **rest
    )


PARTS_STILL = measured(update__ratio__conv_in=([0, 64], [0, 0]), update__ratio__conv_out=([0, 64], [0, 0]))
NO_GRADIENT = measured(
    gradient__norm=(STEPS, np.zeros(128)),
    gradient__part__conv_in=(STEPS, np.zeros(128)),
    gradient__part__conv_out=(STEPS, np.zeros(128)),
)
STILL = checks(sentinel__moved=np.zeros(128), update__moved=np.zeros(3), update__lost=np.ones(3))


def only_monitors(series: Series) -> Series:
    """A record of before there were probes."""
    return {name: value for name, value in HEALTHY.items() if not name.startswith("check/")} | series


def without(*names: str) -> Series:
    return {name: value for name, value in HEALTHY.items() if not any(n in name for n in names)}


HEALTHY_ROWS = [
    row("healthy"),
    row("healthy, with labels", "", LABELS),
    row("healthy, without probes", "", only_monitors({}), whole=True),
    row("nothing recorded yet", whole=True),
]


@cache
def every_row() -> tuple[Row, ...]:
    files = sorted((Path(__file__).parents[1] / "diagnosis" / "rules").rglob("test_*.py"))
    return (*HEALTHY_ROWS, *(given for file in files for given in runpy.run_path(str(file)).get("ROWS", ())))


def history_of(given: Row) -> tuple[Series, Config | None]:
    series = given.series if given.whole else HEALTHY | given.series
    return series, config_of(tuple(given.settings.items())) if given.settings else None


@cache
def config_of(settings: tuple[tuple[str, Any], ...]) -> Config:
    return resolve(preset="digits", settings=dict(settings))


def case_of(given: Row) -> RunHistory:
    series, config = history_of(given)
    status = {} if given.planned is None else {"steps": given.planned}
    return RunHistory(InMemoryReadings(series, given.events), config, status)


def parameters(rows: Iterable[Row]) -> list[Any]:
    return [
        pytest.param(each, id=each.name, marks=[pytest.mark.xfail(reason=each.wrong)] if each.wrong else [])
        for each in rows
    ]


def fires_in(rows: Iterable[Row]) -> set[str]:
    return {cause for each in rows for cause in each.causes}


def check_row(given: Row) -> None:
    found = examine(case_of(given))
    assert [finding.cause for finding in found] == list(given.causes)
    for finding, severity in zip(found, given.severities, strict=True):
        assert severity in ("", finding.severity)
    for finding in found:
        json.dumps(finding.to_json(), allow_nan=False)
        assert finding.evidence
        assert finding.summary.endswith(".")
        assert finding.fix.text.endswith(".")
        assert 0 < finding.confidence <= 1
        assert explain(finding.code).cause == finding.cause
