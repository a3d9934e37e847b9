"""Histories for the rules of model.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import ERROR, LOOKS, STEPS, broken, checks, measured
from rule_rows import Row, case_of, check_row, fires_in, parameters, row

from safelight.diagnosis.rules import model

LATE = 8 * LOOKS

ROWS = [
    row("a part without gradient", "model.no-gradient", measured(gradient__part__time=(STEPS, np.zeros(128)))),
    row("a part that is frozen later", "model.no-gradient",
        measured(gradient__part__time=(STEPS, np.where(STEPS < 60, 0.3, 0.0)))),
    row("a part that is silent at times", "",
        measured(gradient__part__time=(STEPS, np.where(STEPS % 20 < 12, 0.3, 0.0)))),
    row("a part that wakes up late", "", measured(gradient__part__time=(STEPS, (STEPS > 20) * 0.1))),
    row("too early to say", "", measured(gradient__norm=(STEPS[:8], np.ones(8)), gradient__part__a=(STEPS[:8],
        np.zeros(8))), whole=True),
    row("zeros everywhere", "model.zero-init", checks(network__zero_weights=0.9, network__matrices_reached=0.1)),
    row("zero output layers of blocks", "", checks(network__zero_weights=0.4, network__matrices_reached=1)),
    row("too loud", "model.init-gain", checks(loss__error=np.where(STEPS == 0, 30.0, ERROR))),
    row("a little loud", "", checks(loss__error=np.where(STEPS == 0, 2.0, ERROR))),
    row("tanh at the end", "model.bounded-output", checks(network__loudest=1.0)),
    row("ReLU at the end", "model.bounded-output", checks(network__one_sided=1)),
    row("dead units", "model.dead-units", checks(network__silent=0.9)),
    row("sunk units", "model.dead-units", checks(network__sunk=0.9)),
    row("some dead units", "", checks(network__silent=0.3)),
    row("too much dropout", "model.dropout", checks(network__dropout=0.8)),
    row("dropout of a half", "", checks(network__dropout=0.5)),
    row("blind to the timestep", "model.blind-to-timestep", checks(network__time_response=0)),
    row("blind to the timestep later", "model.blind-to-timestep",
        checks(network__time_response=0.3, response__time=([16, 32, 48, 64], [0.2, 0.3, 0, 0]))),
    row("a faint response to the timestep", "", checks(network__time_response=1e-4)),
    row("timesteps look alike", "model.embedding-collapsed", checks(network__time_collision=0.9999)),
    row("times from 0 to 1 that look alike", "model.embedding-collapsed:info",
        checks(network__time_collision=0.99, network__time_highest=0.98)),
    row("times from 0 to 1 that are hardly heard", "model.embedding-collapsed:warning",
        checks(network__time_collision=0.99, network__time_highest=0.98, response__time=(LATE, np.full(7, 0.001)))),
    row("times from 0 to 1 that are hardly heard yet", "model.embedding-collapsed:info",
        checks(network__time_collision=0.99, network__time_highest=0.98, response__time=(LOOKS, np.full(7, 0.001)))),
    row("times from 0 to 1 that are heard", "model.embedding-collapsed:info",
        checks(network__time_collision=0.99, network__time_highest=0.98, response__time=(LATE, np.full(7, 0.2)))),
    row("timesteps look a little alike", "", checks(network__time_collision=0.6)),
    row("samples see each other", "model.batch-coupling", checks(network__coupling=0.01)),
    row("sums in another order", "", checks(network__coupling=1e-6)),
    row("a skip connection is cut", "model.skip-cut", checks(network__unused=0.5)),
    row("a few inputs are zero", "", checks(network__unused=0.05)),
    row("answers that are not finite", "model.nonfinite", checks(finite__pred=([50], [0]))),
    row("answers of weights that broken inputs left", "",
        checks(finite__x_t=([50], [0]), finite__pred=([50, 51], [0, 0]),
            loss__error=([49, 50, 51], [1, np.nan, np.nan]))),
    row("answers of weights that a gradient left", "loss.nonfinite",
        checks(finite__pred=([51, 52], [0, 0]), loss__error=([49, 50, 51, 52], [1, 1, np.nan, np.nan])),
        events=broken([50, 51, 52])),
    row("answers of weights that a loss left", "loss.weight-nonfinite",
        checks(finite__loss=([50], [0]), finite__pred=([51], [0]), loss__error=([49, 50, 51], [1, 1, np.nan]))
            | measured(loss__mean=([49, 50, 51], [1, np.nan, np.nan])),
        events=broken([50, 51])),
    row("answers that break after weights were healthy again", "model.nonfinite",
        checks(finite__pred=([52], [0]), loss__error=([50, 51, 52], [1, 1, np.nan])), events=broken([50, 52])),
    row("answers that broke the weights themselves", "model.nonfinite",
        checks(finite__pred=([50, 51], [0, 0]), finite__loss=([50, 51], [0, 0]),
            loss__error=([49, 50, 51], [1, np.nan, np.nan])), events=broken([50, 51])),
    row("answers that break after a broken input was refused", "model.nonfinite",
        checks(finite__x_t=([50], [0]), finite__pred=([50, 52], [0, 0]),
            loss__error=([50, 51, 52], [np.nan, 1, np.nan]))),
    row("frozen, and in the optimizer", "model.frozen", checks(optimizer__frozen=0.2),
        events=((0, "parameters", {"frozen": ["time.weight"]}),)),
    row("trained in evaluation mode", "mode.eval-in-training", checks(mode__training=np.zeros(128))),
    row("evaluation mode, where it does not matter", "",
        checks(mode__training=np.zeros(128), network__depends_on_mode=0)),
    row("sampled in training mode", "mode.train-in-sampling", checks(sampler__in_training=1)),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in model.RULES}


@pytest.mark.parametrize("is_known", [True, False])
def test_finite_inputs_are_claimed_only_where_they_were_seen(is_known: bool) -> None:
    seen = {"batch__reach": ([50], [1.0])} if is_known else {}
    found = next(rule for rule in model.RULES if rule.code == "MOD010").find(
        case_of(row("", "", checks(finite__pred=([50], [0]), **seen)))
    )
    assert found is not None
    assert ("for finite inputs" in found.summary, bool(found.ruled_out)) == (is_known, is_known)
