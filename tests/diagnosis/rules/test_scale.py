"""Histories for the rules of scale.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import checks
from rule_rows import Row, check_row, fires_in, parameters, row

from safelight.diagnosis.rules import scale

LATENT = checks(
    batch__lowest=np.full(128, -4.3), batch__highest=np.full(128, 4.4), batch__std=np.full(128, 1.0),
    batch__tails=np.full(128, 4.4), batch__channels=np.full(128, 4.0), batch__channel_offset=np.full(128, 0.4),
    batch__channel_lowest=np.full(128, 0.8), batch__channel_highest=np.full(128, 1.2),
)  # fmt: skip

ZERO_ONE = checks(batch__lowest=np.zeros(128), batch__std=np.full(128, 0.3))

ROWS = [
    row("sigma_data of another set", "scale.sigma-data", checks(mixture__sigma_data=3.0)),
    row("the usual sigma_data", "", checks(mixture__sigma_data=0.5)),
    row("[0, 1]", "scale.range-0-1", ZERO_ONE),
    row("[0, 1] of EDM", "", ZERO_ONE | checks(mixture__process=3, mixture__sigma_data=0.3)),
    row("[0, 1] of a variance-exploding process", "", ZERO_ONE | checks(mixture__process=2, mixture__row=0)),
    row("[0, 1] of a flow", "scale.range-0-1", ZERO_ONE | checks(mixture__process=1, mixture__row=3)),
    row("a deviation that sigma_data has as well", "", checks(batch__lowest=np.full(128, -19.0),
        batch__highest=np.full(128, 18.0), batch__std=np.full(128, 5.0), batch__dimensions=2,
        mixture__process=3, mixture__sigma_data=5.0)),
    row("pixels to 255 that look like latents", "scale.range-0-255", LATENT | checks(batch__lowest=np.zeros(128),
        batch__highest=np.full(128, 255.0), batch__std=np.full(128, 40.0), batch__tails=np.full(128, 5.0))),
    row("dark pictures in [-1, 1]", "", checks(batch__highest=np.full(128, 0.2))),
    row("[0, 1] in vectors", "", checks(batch__lowest=np.zeros(128), batch__dimensions=2, data__lowest=0)),
    row("[0, 255]", "scale.range-0-255", checks(batch__lowest=np.zeros(128), batch__highest=np.full(128, 255.0),
        batch__std=np.full(128, 80.0))),
    row("whole numbers", "scale.integer", checks(batch__integer=1)),
    row("latents without their factor", "scale.wrong-std", checks(batch__lowest=np.full(128, -19.0),
        batch__highest=np.full(128, 18.0), batch__std=np.full(128, 5.0), batch__dimensions=2)),
    row("latents with their factor", "", checks(batch__lowest=np.full(128, -4.0), batch__highest=np.full(128, 4.0),
        batch__std=np.full(128, 1.0), batch__dimensions=2)),
    row("normalised as for a classifier", "scale.outside", checks(batch__lowest=np.full(128, -2.1),
        batch__highest=np.full(128, 2.6))),
    row("latents by their channels", "", LATENT),
    row("latents without their factor, by their channels", "scale.latents:warning", LATENT
        | checks(batch__std=np.full(128, 5.5), batch__lowest=np.full(128, -22.0), batch__highest=np.full(128, 22.0))),
    row("latents that are scaled twice", "scale.latents", LATENT | checks(batch__std=np.full(128, 0.18),
        batch__lowest=np.full(128, -0.8), batch__highest=np.full(128, 0.8))),
    row("latents of EDM2", "", LATENT | checks(batch__std=np.full(128, 0.5), batch__lowest=np.full(128, -2.1),
        batch__highest=np.full(128, 2.1))),
    row("latents without their shift", "scale.latents", LATENT | checks(batch__channel_offset=np.full(128, 3.0))),
    row("a channel of latents that is empty", "scale.latents", LATENT | checks(batch__channel_lowest=np.zeros(128))),
    row("latents of three channels that reach far", "", LATENT | checks(batch__channels=np.full(128, 3.0))),
    row("declared as latents", "", checks(batch__space=1, batch__lowest=np.full(128, -2.2),
        batch__highest=np.full(128, 2.2), batch__std=np.full(128, 1.0))),
    row("declared as pixels", "scale.outside", LATENT | checks(batch__space=0)),
    row("latents without long tails", "", LATENT | checks(batch__tails=np.full(128, 3.0),
        batch__lowest=np.full(128, -2.9), batch__highest=np.full(128, 2.9))),
    row("pixels with an alpha channel", "", checks(batch__channels=np.full(128, 4.0), batch__tails=np.full(128, 2.2))),
    row("a little beyond 1", "", checks(batch__highest=np.full(128, 1.05))),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in scale.RULES}
