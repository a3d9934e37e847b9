"""Histories for the rules of data.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import HEALTHY, LABELS, STEPS, chance, checks
from rule_rows import Row, check_row, fires_in, parameters, row

from safelight.diagnosis.rules import data

ROWS = [
    row("images that are not finite", "data.nonfinite", checks(data__nonfinite=0.01)),
    row("a batch that is not finite", "data.nonfinite", checks(finite__x0=([40], [0.0]))),
    row("copies among the images", "data.duplicates", checks(data__duplicates=0.2)),
    row("nothing but copies of one image", "data.duplicates",
        checks(data__duplicates=0.99, data__largest_group=1.0, stream__images_alike=(STEPS[1:], np.ones(127)),
               stream__images_again=(STEPS[1:], np.ones(127)), stream__different=([0, 127], [1, 1]),
               batch__mean=np.full(128, -0.3))),
    row("copies of three images in small batches", "data.duplicates",
        checks(data__duplicates=0.98, data__largest_group=0.34, stream__images_alike=(STEPS[1::3], np.ones(43)),
               stream__images_again=(STEPS[9:], np.ones(119)), stream__different=([0, 127], [2, 3]))),
    row("the same batch, with some copies in it", "data.same-batch data.duplicates",
        checks(data__duplicates=0.2, stream__images_alike=(STEPS[1:], np.ones(127)))),
    row("copies that only the batches show", "data.duplicates",
        {name: value for name, value in HEALTHY.items() if "check/data/" not in name}
        | checks(stream__images_alike=(STEPS[1:], np.ones(127)), stream__different=([0, 127], [1, 1])), whole=True),
    row("blank batches, of which nothing else is known", "data.same-batch scale.wrong-std",
        {name: value for name, value in HEALTHY.items() if "check/data/" not in name}
        | checks(stream__images_alike=(STEPS[1:], np.ones(127)), stream__different=([0, 127], [1, 1]),
                 batch__std=np.full(128, 1e-6)), whole=True),
    row("a batch with an image twice", "",
        {name: value for name, value in HEALTHY.items() if "check/data/" not in name}
        | checks(stream__different=([0, 127], [7, 900])), whole=True),
    row("a few copies", "", checks(data__duplicates=0.09)),
    row("blank images", "data.blank", checks(data__blank=0.3)),
    row("a few blank images", "", checks(data__blank=0.09)),
    row("in the order of classes", "data.not-shuffled", LABELS | checks(stream__labels_neighbours=0.9)),
    row("one large class", "", LABELS | checks(stream__labels_neighbours=0.62, stream__labels_neighbours_expected=0.6)),
    row("neighbours of few samples", "",
        LABELS | checks(stream__labels_neighbours=0.5, stream__labels_pairs=8, stream__labels_drawn=16)),
    row("every round in the same order", "data.not-shuffled", checks(stream__images_again=(STEPS[64:], np.ones(64)))),
    row("a batch came again by chance", "", checks(stream__images_again=([9, 70], [1, 1]))),
    row("other images from step 80 on", "data.shifted",
        checks(batch__mean=np.where(STEPS < 80, chance(-0.35, -0.25), chance(0.25, 0.35)))),
    row("images that drift", "data.not-shuffled", checks(batch__mean=chance(-0.05, 0.05) + STEPS / 300)),
    row("one odd batch", "", checks(batch__mean=np.where(STEPS == 80, 0.9, chance(-0.35, -0.25)))),
    row("the same batch", "data.same-batch",
        checks(stream__images_alike=(STEPS[1:], np.ones(127)), stream__images_again=(STEPS[1:], np.ones(127)),
               stream__different=([0, 127], [8, 8]), batch__mean=np.full(128, -0.3))),
    row("the same batch twice", "", checks(stream__images_alike=(STEPS[1:3], np.ones(2)))),
    row("the same batch at every look, late", "data.same-batch",
        checks(stream__images_alike=([97, 129, 161], np.ones(3)))),
    row("held-out images are trained on", "data.held-out-overlap", checks(data__held_out_overlap=0.1)),
    row("batches of held-out images", "data.held-out-overlap", checks(rows__held_out=np.full(16, 0.05))),
    row("batches without held-out images", "", checks(rows__held_out=np.zeros(16))),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in data.RULES}
