"""Histories for the rules of learning.py: sick, healthy and nearly sick."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from histories import HEALTHY, Series, checks, measured
from rule_rows import Row, case_of, check_row, fires_in, parameters, row

from safelight.config.resolve import resolve
from safelight.diagnosis.coverage import coverage
from safelight.diagnosis.doctor import examine
from safelight.diagnosis.rules import learning
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory

LOOKS = [31, 63, 95, 127, 159, 191, 223, 255]
PARTS = ("down", "middle", "up")
LATE, ERRORS_AT = [4 * look for look in LOOKS], np.arange(0, 1000, 25)
PARTS_WELL: Series = {
    f"{family}/{part}": (LOOKS, numbers)
    for part in PARTS
    for family, numbers in (
        ("update/ratio", [4e-3] * 8),
        ("weight/norm", [10.0] * 7 + [10.5]),
        ("gradient/part", [0.2] * 8),
    )
}


def skilled(skills: list[float], images: float = 25_600, **rest: Any) -> Series:
    """Skill at eight checkpoints, and parts of a network whose updates, weights and gradients are as they should be."""
    drawn = checks(stream__drawn=([0, 127], [8, images]), stream__different=([0, 127], [8, 900]))
    return measured(skill__raw=(LOOKS, skills)) | PARTS_WELL | drawn | measured(**rest)


def foreign(skills: list[float], images: float = 64, error: float = 1.0) -> Series:
    """A loop that is not ours: skill, images of a step, and the error over that of a model that predicts 0."""
    errors = checks(loss__error=(ERRORS_AT, np.full(40, error)), loss__zero=(ERRORS_AT, np.ones(40)))
    return measured(skill__raw=(LATE, skills)) | checks(stream__per_step=([0, 1023], [images, images])) | errors


def parts(family: str, *numbers: float) -> Series:
    """At the first and the last checkpoint, of each part."""
    return {
        f"{family}/{part}": ([LOOKS[0], LOOKS[-1]], [first, numbers[-1]]) for part in PARTS for first in numbers[:1]
    }


LEARNS = [-1.4, -0.3, 0.4, 0.8, 1.1, 1.3, 1.5, 1.6]
NOTHING = [-1.4, -1.2, -1.0, -0.9, -0.9, -0.8, -0.8, -0.7]
LITTLE = [-1.4, -0.9, -0.3, 0.1, 0.4, 0.6, 0.7, 0.8]
LEVEL = [-1.4, -0.9, 0.1, 0.2, 0.2, 0.21, 0.2, 0.21]
RUNNING = {"train.steps": 512, "train.batch_size": 100}  # 25,600 images at the last checkpoint
DONE = RUNNING | {"train.steps": 256}


def ours(name: str, causes: str, series: Series, **changes: Any) -> Row:
    """In a run of ours, whose settings are known."""
    return row(name, causes, series, settings=RUNNING | changes)


ROWS = [
    ours("learns", "", skilled(LEARNS)),
    ours("loses what it had", "loss.ruined", skilled([0.2, 0.8, 1.3, 1.5, 1.4, 0.9, 0.6, 0.5])),
    ours("a trough of one checkpoint", "", skilled([0.2, 0.8, 1.3, 1.5, 1.5, 1.5, 0.6, 1.5])),
    ours("fluctuates", "", skilled([0.2, 0.8, 1.3, 1.5, 1.4, 1.35, 1.3, 1.35])),
    row("learns nothing, and no part is known", "loss.not-learning",
        measured(skill__raw=(LOOKS, NOTHING)), whole=True, settings=RUNNING),
    ours("has not seen enough images", "", skilled(NOTHING), **{"train.batch_size": 30}),
    row("another loop, in which that is nothing strange", "", skilled(NOTHING)),
    row("another loop that learns nothing for long", "loss.not-learning", foreign(NOTHING), whole=True),
    row("another loop that predicts the noise, which is learnt last where there is much", "",
        foreign(NOTHING, error=0.7), whole=True),
    row("another loop, whose errors are not known", "", measured(skill__raw=(LATE, NOTHING))
        | checks(stream__per_step=([0, 1023], [64, 64])), whole=True),
    row("another loop that has not seen enough images", "", foreign(NOTHING, images=20), whole=True),
    row("another loop, which stays where it is", "loss.not-learning", foreign(NOTHING) | PARTS_WELL, whole=True),
    row("another loop, whose weights have grown", "loss.not-learning",
        foreign(NOTHING) | PARTS_WELL | parts("weight/norm", 10.0, 24.0), whole=True),
    row("another loop, whose weights a rate has broken", "lr.too-high",
        foreign(NOTHING) | PARTS_WELL | parts("weight/norm", 10.0, 300.0), whole=True),
    row("another loop, whose gradients vanish, with any updates", "model.vanishing-gradient",
        foreign(NOTHING) | PARTS_WELL | parts("update/ratio", 8e-4, 8e-4) | {"gradient/part/down": (LOOKS, [2e-8] * 8)},
        whole=True),
    ours("slow, and still learning", "", skilled(LITTLE)),
    row("slow, and over", "loss.undertrained", skilled([each - 0.2 for each in LITTLE]), settings=DONE),
    row("nearly as good as a filter, and over", "", skilled(LITTLE), settings=DONE),
    ours("predicts the noise, which is learnt last where there is much", "", skilled(NOTHING),
         **{"diffusion.prediction": "epsilon"}),
    ours("weights that have grown", "lr.too-high", skilled(NOTHING) | parts("weight/norm", 10.0, 24.0)),
    ours("weights that have grown in a run that learns", "", skilled(LEARNS) | parts("weight/norm", 10.0, 24.0)),
    ours("updates that are too short", "lr.too-low", skilled(LITTLE) | parts("update/ratio", 8e-4, 8e-4)),
    ours("short updates in a run that learns", "", skilled(LEARNS) | parts("update/ratio", 8e-4, 8e-4)),
    ours("gradients that vanish", "model.vanishing-gradient",
         skilled(NOTHING) | {"gradient/part/down": (LOOKS, [2e-6] * 8)}),
    ours("gradients that are smaller, and are learnt from", "",
         skilled(LEARNS) | {"gradient/part/down": (LOOKS, [2e-6] * 8)}),
    ours("too small", "model.too-small", skilled(LEVEL)),
    ours("slow and level, as a linear schedule is", "", skilled([-1.4, -0.9, 0.1, 0.3, 0.4, 0.41, 0.42, 0.42])),
    ours("far too small", "model.too-small", skilled(NOTHING)),
    ours("level, and better than a linear filter", "", skilled([-1, 0.5, 1.0, 1.2, 1.2, 1.2, 1.2, 1.2])),
    ours("fine-tuning", "", skilled(NOTHING), **{"model.init": "trained/"}),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in learning.RULES}


def too_high(series: Series) -> Series:
    """Two updates raise the error, at steps 32 and 64; later ones do not."""
    return series | checks(search__1=([32, 64, 96, 128, 192], [2.4, 1.3, 0.97, 0.98, 0.98]),
                           **{"search__0.1": ([32, 64, 96, 128, 192], [0.97] * 5)},
                           **{"search__0.3": ([32, 64, 96, 128, 192], [0.97] * 5)},
                           search__rate=([32, 64, 96, 128, 192], [0.05] * 5))  # fmt: skip


@pytest.mark.parametrize(
    ("skills", "over"),
    [(LEARNS, 96), (NOTHING, None), ([0.8, 0.8, 0.7, 0.3, 0.2, 0.2, 0.2, 0.1], None)],
    ids=["recovered", "never learnt again", "never regained"],
)
def test_an_error_that_ended_stays_open_while_the_run_has_not_recovered(skills: list[float], over: int | None) -> None:
    run = RunHistory(InMemoryReadings(HEALTHY | too_high(skilled(skills))), resolve(preset="digits", settings=RUNNING))
    [finding] = examine(run)
    assert (finding.cause, finding.over) == ("lr.too-high", over)
    assert ("has not recovered" in finding.summary) == (over is None)


def test_damage_that_came_long_after_has_its_own_finding() -> None:
    late = [1.2, 1.4, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5] + [1.5] * 8 + [0.4] * 4
    steps = [16 * (place + 1) - 1 for place in range(len(late))]
    series = HEALTHY | too_high(skilled(LEARNS)) | measured(skill__raw=(steps, late))
    findings = examine(RunHistory(InMemoryReadings(series)))
    assert [(finding.cause, finding.over) for finding in findings] == [("loss.ruined", None), ("lr.too-high", 96)]


def test_images_of_another_loop_are_its_updates_times_those_of_a_step() -> None:
    steps = [8 * look for look in LOOKS]
    series = measured(skill__raw=(steps, NOTHING)) | checks(
        stream__drawn=([0, 127], [64, 4_224]), stream__per_step=([0, 127], [64, 64])
    )
    case = case_of(row("", "", series, whole=True))
    found = learning.learning(case)
    assert found is not None
    assert found.images == 64 * (steps[-1] + 1)


@pytest.mark.parametrize(
    ("skills", "advice"),
    [
        ([each - 0.2 for each in LITTLE], "Train longer"),
        ([-5.0, -4.5, -4.0, -3.5, -3.0, -2.5, -2.0, -1.5], "Train longer"),
        (NOTHING, "The skill gains so little"),
    ],
    ids=["rises", "rises fast from far below", "stays"],
)
def test_only_a_run_that_still_learns_is_told_to_go_on(skills: list[float], advice: str) -> None:
    for config in (None, resolve(preset="digits", settings=DONE)):
        run = RunHistory(InMemoryReadings(skilled(skills)), config, {"steps": 256})
        found = next(rule for rule in learning.RULES if rule.code == "LEA003").find(run)
        assert found is not None
        assert found.fix.text.startswith(advice)
        assert ("model.widths" in found.fix.text) == (config is not None and advice.startswith("The"))


@pytest.mark.parametrize("code", ["LEA002", "LEA004"])
def test_a_rule_has_not_looked_before_there_are_enough_images(code: str) -> None:
    rule = next(rule for rule in learning.RULES if rule.code == code)
    for images, reason in ((64, None), (32, "needs 60,000 images and 500 updates; there were 32,672 and 1,021")):
        run = RunHistory(InMemoryReadings(foreign(NOTHING, images=images) | PARTS_WELL))
        assert coverage(run, (rule,)).unable.get(code) == reason


def test_who_is_too_small_is_not_known_of_other_loops() -> None:
    rule = next(rule for rule in learning.RULES if rule.code == "LEA005")
    run = RunHistory(InMemoryReadings(foreign(NOTHING) | PARTS_WELL))
    assert rule.find(run) is None
    assert rule.code in coverage(run, (rule,)).missing


def test_images_are_counted_by_the_settings_of_a_run() -> None:
    case = case_of(row("few", "", skilled(NOTHING, images=100)))
    config = resolve(preset="digits", settings={"train.batch_size": 128})
    assert learning.slow(case) is None
    found = learning.slow(replace(case, config=config))
    assert found is not None
    assert found.images == 256 * 128
