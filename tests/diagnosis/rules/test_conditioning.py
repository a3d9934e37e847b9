"""Histories for the rules of conditioning.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import ERROR, LABELS, LOOKS, STEPS, checks
from rule_rows import Row, check_row, fires_in, parameters, row

from safelight.diagnosis.rules import conditioning

TEXT = checks(
    conditions__count=np.full(64, 2.0), conditions__empty=np.zeros(64), conditions__constant=np.zeros(64),
    response__conditions=(LOOKS, np.full(7, 0.2)), conditions__gain=(LOOKS, np.full(7, 0.05)),
    conditions__gain_error=(LOOKS, np.full(7, 0.002)), conditions__error=(LOOKS, np.full(7, 0.35)),
)  # fmt: skip

ROWS = [
    row("labels are ignored", "conditioning.ignored", LABELS | checks(network__label_response=0)),
    row("labels are ignored later", "conditioning.ignored",
        LABELS | checks(network__label_response=0.3, response__labels=([16, 32, 48, 64], [0.2, 0.3, 0, 0]))),
    row("labels that a block of zeros still hides", "",
        LABELS | checks(network__label_response=0.3, response__labels=([1, 4, 16, 32], [0, 0, 0.1, 0.3]))),
    row("labels that are dropped inside of the network", "",
        LABELS | checks(stream__shown_kinds=10, stream__shown_highest=9, stream__null_trained=([2], [1.0]))),
    row("labels counted from 1", "conditioning.never-dropped:info",
        LABELS | checks(stream__shown_kinds=10, stream__shown_lowest=1, stream__shown_highest=10)),
    row("text is ignored", "conditioning.ignored", TEXT | checks(response__conditions=(LOOKS, np.zeros(7)))),
    row("text that a block of zeros still hides", "", TEXT
        | checks(response__conditions=(LOOKS, [0, 0, 0, 0.01, 0.1, 0.1, 0.1]))),
    row("text of zeros", "conditioning.always-dropped:warning", TEXT
        | checks(conditions__empty=np.ones(64), conditions__constant=np.ones(64))),
    row("text that is dropped in some batches", "", TEXT | checks(conditions__empty=np.arange(64) % 8 == 0)),
    row("one prompt for all", "conditioning.always-dropped:info", TEXT | checks(conditions__constant=np.ones(64))),
    row("one prompt for all labels", "conditioning.always-dropped:warning", TEXT
        | checks(conditions__constant=np.ones(64), stream__labels_kinds=10)),
    row("text of other images", "conditioning.permuted:warning", TEXT
        | checks(conditions__gain=(LOOKS, np.zeros(7)))),
    row("text that says little", "", TEXT
        | checks(conditions__gain=(LOOKS, np.zeros(7)), response__conditions=(LOOKS, np.full(7, 0.01)))),
    row("healthy, with text", "", TEXT),
    row("labels are mostly dropped", "conditioning.always-dropped", LABELS | checks(stream__labels_hidden=0.9)),
    row("labels are dropped half of the time", "", LABELS | checks(stream__labels_hidden=0.5)),
    row("labels hardly matter", "", LABELS | checks(network__label_response=1e-4)),
    row("labels are never dropped", "conditioning.never-dropped",
        LABELS | checks(stream__shown_kinds=10, stream__shown_highest=9, stream__labels_hidden=0)),
    row("too early to say that labels are never dropped", "",
        LABELS | checks(stream__shown_kinds=10, stream__shown_highest=9, stream__labels_drawn=300)),
    row("a table without a row for no label", "",
        LABELS | checks(network__label_rows=10, stream__shown_kinds=10, stream__shown_highest=9)),
    row("labels are always dropped", "conditioning.always-dropped", LABELS | checks(stream__shown_kinds=1,
        stream__shown_lowest=10, stream__shown_highest=10, stream__labels_hidden=1)),
    row("one class only", "conditioning.one-class", LABELS | checks(stream__shown_kinds=2, stream__shown_lowest=3,
        stream__shown_highest=10, stream__labels_kinds=1, stream__labels_neighbours=1,
        stream__labels_neighbours_expected=1)),
    row("two classes", "", LABELS | checks(network__label_rows=3, stream__shown_kinds=3, stream__shown_highest=2)),
    row("labels of other images", "conditioning.permuted",
        LABELS | checks(labels__gain=(LOOKS, np.zeros(7)), loss__error=np.maximum(ERROR * 0.8, 0.2))),
    row("labels that help nothing yet", "", LABELS | checks(labels__gain=(LOOKS, np.zeros(7)),
        labels__explain=(LOOKS, np.full(7, 4.0)), loss__error=np.maximum(ERROR * 0.8, 0.2))),
    row("labels that help nothing, of images that are not alike", "conditioning.permuted", LABELS | checks(
        labels__gain=(LOOKS, np.zeros(7)), labels__explain=(LOOKS, [0.3, -1, 1, 0, 0.5, 1.2, -0.2]),
        loss__error=np.maximum(ERROR * 0.8, 0.2))),
    row("labels that help next to nothing", "", LABELS | checks(labels__gain=(LOOKS, np.zeros(7)),
        labels__gain_error=(LOOKS, np.full(7, 0.008)), loss__error=np.maximum(ERROR * 0.8, 0.2))),
    row("labels that help next to nothing, of images that are not alike", "conditioning.permuted", LABELS | checks(
        labels__gain=(LOOKS, np.zeros(7)), labels__gain_error=(LOOKS, np.full(7, 0.008)),
        labels__explain=(LOOKS, [0.3, -1, 1, 0, 0.5, 1.2, -0.2]), loss__error=np.maximum(ERROR * 0.8, 0.2))),
    row("labels that stop belonging", "conditioning.permuted",
        LABELS | checks(labels__explain=(LOOKS, [9, 12, 8, 11, 9, 0.4, -1.0]))),
    row("a look at which labels hardly belong", "",
        LABELS | checks(labels__explain=(LOOKS, [9, 12, 8, 11, 9, 10, -1.0]))),
    row("labels that belong less", "", LABELS | checks(labels__explain=(LOOKS, [9, 12, 8, 11, 9, 4, 3.5]))),
    row("labels that help a little", "", LABELS | checks(labels__gain=(LOOKS, np.full(7, 0.01)))),
    row("labels of other images, by the set itself", "conditioning.permuted",
        LABELS | checks(rows__labels_moved=(STEPS, (STEPS >= 40) * 0.9))),
    row("labels as the set has them", "", LABELS | checks(rows__labels_moved=np.zeros(128))),
    row("labels, and too much noise to say", "",
        LABELS | checks(labels__gain=(LOOKS, np.zeros(7)), labels__gain_error=(LOOKS, np.full(7, 0.05)))),
    row("a wrong formula of guidance", "conditioning.guidance", checks(sampler__guidance=0.5)),
    row("guidance to the last digits of fp32", "", checks(sampler__guidance=1e-6)),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in conditioning.RULES}
