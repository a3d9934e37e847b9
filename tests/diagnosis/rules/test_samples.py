"""Histories for the rules of samples.py: sick, healthy and nearly sick."""

from __future__ import annotations

from typing import Any

import pytest
from histories import Event, Series, measured
from rule_rows import Row, case_of, check_row, fires_in, parameters, row

from safelight.diagnosis.doctor import examine
from safelight.diagnosis.rules import samples

REAL = {
    "precision": 0.95, "recall": 0.95, "density": 1.0, "coverage": 0.95, "variance": 1.0, "distance": 1.0,
    "vendi": 1.0, "modes": 0.98, "largest mode": 0.1, "different modes": 0,
}  # fmt: skip
LOOKS = {"contrast": 1.0, "apart": 1.0, "saturated": 0.1, "colour": 0.1, "grain": 1.0}
EVEN = [[0.05, 0.05]] * 20
ONE = [[0.34, 0.07], *[[0.0, 0.05]] * 6, *[[0.05, 0.05]] * 13]
FEW = [[0.1, 0.05]] * 10 + [[0.0, 0.05]] * 10
FINISHED: dict[str, Any] = {"train.steps": 128}
LONGER: dict[str, Any] = {"train.steps": 1000}


def evaluated(after: int, *, near: float = 0.1, kinds: Any = EVEN, error: float = 0.05, **found: float) -> Event:
    """The figures of real images but for those in `found`, each with an interval of 0.04 to both sides."""
    values = REAL | {name.replace("_", " "): value for name, value in found.items()}
    figures = {
        name: {"value": value, "interval": [value - 0.04, value + 0.04], "real": [REAL[name] - 0.03, REAL[name] + 0.03]}
        for name, value in values.items()
    }
    own = {"unbiased": {"value": 2 * near, "error": error}, "kernel": {"value": 0.01 * near, "error": 0.0001}}
    gaussian = {"unbiased": {"value": 2.0, "error": error}, "kernel": {"value": 0.01, "error": 0.01 * error}}
    return after - 1, "evaluated", {"after": after, "figures": figures, "kinds": kinds, "gaussian": gaussian, **own}


def skilled(*ema: float, raw: float | None = None) -> Series:
    """At the two evaluations, with what is recorded beside them."""
    steps = [63, 127]
    return measured(
        skill__ema=(steps, ema), skill__raw=(steps, ema if raw is None else [raw, raw]),
        quality__distance=(steps, [1, 1]), quality__gaussian_distance=(steps, [1, 1]),
        quality__kernel=(steps, [1, 1]), quality__gaussian_kernel=(steps, [1, 1]),
        **{f"check__samples__{name}": (steps, [1, 1]) for name in (*LOOKS, "nonfinite")},
        quality__density=(steps, [1, 1]), diversity__largest_mode=(steps, [1, 1]), diversity__variance=(steps, [1, 1]),
    )  # fmt: skip


LEARNT, NOT_YET = skilled(1.5, 1.5), skilled(0.6, 0.8)
CROWDED: dict[str, Any] = {"largest_mode": 0.34, "modes": 0.69, "coverage": 0.8, "kinds": ONE}
MISSING: dict[str, Any] = {"coverage": 0.5, "recall": 0.6, "modes": 0.5, "vendi": 0.6, "kinds": FEW}
REPEATED: dict[str, Any] = {"recall": 0.02, "vendi": 0.3, "coverage": 0.4}
BLURRED: dict[str, Any] = {"variance": 0.6, "distance": 0.75, "vendi": 0.7, "density": 0.5, "recall": 0.4}
MUSH: dict[str, Any] = {"near": 1.0, "density": 0.3, "precision": 0.5, "variance": 0.5}


def twice(**found: Any) -> tuple[Event, ...]:
    return evaluated(64, **found), evaluated(128, **found)


def looked(after: int, *, ended: bool = False, **found: float) -> Event:
    """The look of a picture, but for what is in `found` as that of real images."""
    looks = {name: {"value": value, "low": 0.9 * LOOKS[name], "high": 1.1 * LOOKS[name]}
             for name, value in (LOOKS | found).items()}  # fmt: skip
    return after - 1, "appearance", {"after": after, "ended": ended, "count": 64, "nonfinite": 0.0, **looks}


def shortly(after: int, near: float) -> Event:
    """An evaluation of the last picture."""
    own, gaussian = {"value": 0.01 * near, "error": 0.0005}, {"kernel": {"value": 0.01, "error": 0.0005}}
    return after - 1, "evaluated_shortly", {"after": after, "kernel": own, "gaussian": gaussian}


def seen_twice(**found: Any) -> tuple[Event, ...]:
    return looked(64, **found), looked(128, **found)


ROWS = [
    row("blank pictures", "generalisation.blank", LEARNT, events=seen_twice(contrast=0.1)),
    row("one picture again and again", "generalisation.alike", LEARNT, events=seen_twice(apart=0.05)),
    row("all at the ends of the range", "generalisation.saturated", LEARNT, events=seen_twice(saturated=0.95)),
    row("noise", "generalisation.noisy", LEARNT, events=seen_twice(grain=4.0)),
    row("far too dark", "generalisation.colour-drift", LEARNT, settings=FINISHED, events=(looked(128, colour=2.0),)),
    row("blank at the end of a run that its patience ended", "generalisation.blank", LEARNT, settings=LONGER,
        events=(looked(128, contrast=0.1, ended=True),)),
    row("blank, and crowded by features", "generalisation.blank", LEARNT,
        events=(*seen_twice(contrast=0.1), *twice(**CROWDED))),
    row("noise of a network that has not learnt enough", "generalisation.undertrained", NOT_YET, settings=FINISHED,
        events=seen_twice(grain=4.0)),
    row("mush at the end of a short run", "generalisation.undertrained", NOT_YET, settings=FINISHED,
        events=(looked(128), shortly(128, 1.0))),
    row("mush at the end of a short run that denoises well", "generalisation.no-better-than-gaussian", LEARNT,
        settings=FINISHED, events=(looked(128), shortly(128, 1.0))),
    row("mush of a short run that gets better", "generalisation.undertrained", skilled(0.5, 1.1), settings=FINISHED,
        events=(looked(128), shortly(128, 1.0))),
    row("off in colour before the network had learnt anything", "", LEARNT, settings=LONGER,
        events=(looked(4, colour=4.0), looked(12, colour=3.0), looked(64), looked(128))),
    row("a short run with fair samples", "", LEARNT, settings=FINISHED, events=(looked(128), shortly(128, 0.4))),
    row("noise early in a run", "", NOT_YET, settings=LONGER, events=seen_twice(grain=4.0)),
    row("blank once, in the middle", "", LEARNT, settings=LONGER, events=(looked(64, contrast=0.1), looked(128))),
    row("half the contrast", "", LEARNT, events=seen_twice(contrast=0.5)),
    row("a little off in colour", "", LEARNT, events=seen_twice(colour=0.6)),
    row("a third in one kind", "generalisation.crowded", LEARNT, events=twice(**CROWDED)),
    row("half of the kinds missing", "generalisation.missing-kinds", LEARNT, events=twice(**MISSING)),
    row("a few images again and again", "generalisation.too-little-variety", LEARNT, events=twice(**REPEATED)),
    row("vague and alike", "generalisation.vague", LEARNT, events=twice(**BLURRED)),
    row("mush of a network that denoises well", "generalisation.no-better-than-gaussian", LEARNT,
        events=twice(**MUSH)),
    row("one evaluation, the last of the run", "generalisation.crowded", LEARNT, settings=FINISHED,
        events=(evaluated(128, **CROWDED),)),
    row("crowded, and then no longer", "generalisation.crowded", LEARNT,
        events=(*twice(**CROWDED), evaluated(192))),
    row("undertrained mush at the end", "generalisation.undertrained", NOT_YET, settings=FINISHED,
        events=(evaluated(128, **MUSH),)),
    row("undertrained and of few kinds", "generalisation.undertrained", NOT_YET, settings=FINISHED,
        events=twice(**CROWDED)),
    row("samples like real images", "", LEARNT, settings=FINISHED, events=twice()),
    row("one evaluation in the middle of a run", "", LEARNT, settings=LONGER, events=(evaluated(64, **CROWDED),)),
    row("crowded at the first evaluation only", "", LEARNT, settings=FINISHED,
        events=(evaluated(64, **CROWDED), evaluated(128))),
    row("a kind that chance could have made larger", "", LEARNT, events=twice(largest_mode=0.16)),
    row("variety that chance could have made smaller", "", LEARNT, events=twice(vendi=0.88, variance=0.9)),
    row("a tenth of the images missing", "", LEARNT,
        events=twice(coverage=0.87, kinds=[[0.0, 0.05], [0.0, 0.05], *[[0.055, 0.05]] * 18])),
    row("better than a Gaussian", "", LEARNT, events=twice(**MUSH | {"near": 0.6, "variance": 1.0})),
    row("data that is Gaussian itself", "", LEARNT, events=twice(**MUSH | {"variance": 1.0, "error": 2.0})),
    row("not learnt enough, and samples like real ones", "", NOT_YET, settings=FINISHED,
        events=twice()),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in samples.RULES}


def test_what_is_undertrained_is_only_noted_while_the_run_trains() -> None:
    [found] = examine(case_of(row("early", "", NOT_YET, settings=LONGER, events=twice(**MUSH))))
    assert (found.cause, found.severity) == ("generalisation.undertrained", "info")
    [found] = examine(case_of(row("end", "", NOT_YET, settings=FINISHED, events=twice(**MUSH))))
    assert (found.severity, found.step) == ("warning", 63)
    assert "skill of 0.80" in found.summary


def test_pixels_that_were_wrong_once_hide_nothing() -> None:
    events = (*seen_twice(colour=2.0), looked(192), *twice(**MUSH), evaluated(192, **MUSH))
    found = examine(case_of(row("both", "", LEARNT, events=events)))
    assert [(each.cause.removeprefix("generalisation."), each.over) for each in found] == [
        ("no-better-than-gaussian", None), ("colour-drift", 191),
    ]  # fmt: skip


def test_what_is_over_says_since_when() -> None:
    [found] = examine(case_of(row("over", "", LEARNT, events=(*twice(**CROWDED), evaluated(192)))))
    assert found.over == 191


EXPONENTIAL = {"ema.kind": "exponential", "ema.decay": 0.99}
UNEQUAL: Event = (0, "data", {"classes": {"cat": 900, "dog": 100}})
EQUAL: Event = (0, "data", {"classes": {"cat": 900, "dog": 400}})


@pytest.mark.parametrize(
    ("series", "events", "settings", "key", "value"),
    [
        (LEARNT, (UNEQUAL, *twice(**CROWDED)), {}, "data.balance", True),
        (LEARNT, (EQUAL, *twice(**CROWDED)), {}, "model.widths", [64, 128]),
        (LEARNT, (UNEQUAL, *twice(**CROWDED)), {"data.balance": True}, "model.widths", [64, 128]),
        (LEARNT, twice(**REPEATED), {"sample.guidance": 5.0}, "sample.guidance", 1.0),
        (LEARNT, twice(**MUSH), {"sample.guidance": 12.0}, "sample.guidance", 1.0),
        (LEARNT, seen_twice(colour=2.0), {"sample.guidance": 12.0}, "sample.guidance", 1.0),
        (skilled(0.5, 1.1), (shortly(128, 1.0),), {}, "train.steps", 256),
        (skilled(1.5, 1.5, raw=1.8), twice(**BLURRED), {"ema.width": 0.2}, "ema.width", 0.1),
        (skilled(1.5, 1.5, raw=1.8), twice(**BLURRED), EXPONENTIAL, "ema.decay", 0.8438),
        (skilled(1.2, 1.5), twice(**BLURRED), {}, "train.steps", 256),
        (LEARNT, twice(**BLURRED), {}, "model.widths", [64, 128]),
        (NOT_YET, twice(**MUSH), {}, "train.steps", 256),
        (skilled(0.6, 0.8, raw=1.1), twice(**MUSH), {}, "ema.width", 0.05),
    ],
)  # fmt: skip
def test_advice_follows_the_evidence_of_the_run(
    series: Series, events: tuple[Event, ...], settings: dict[str, Any], key: str, value: object
) -> None:
    [found] = examine(case_of(row("advice", "", series, events=events, settings=FINISHED | settings)))
    assert found.fix.set == {key: value}


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ((), None),
        ((looked(128),), "what they show was not judged"),
        ((looked(128), shortly(128, 0.4)), "better than a Gaussian (0.40 times as far"),
        ((looked(128), *twice(**CROWDED)), "crowd into one kind"),
        ((*twice(), looked(192)), "what they show was not judged"),
        ((looked(128, contrast=0.1), *twice()), "blank"),
    ],
)
def test_the_newest_samples_have_a_sentence(events: tuple[Event, ...], words: str | None) -> None:
    found = samples.describe_samples(case_of(row("any", "", LEARNT, events=events)))
    assert found == words if words is None else words in (found or "")
