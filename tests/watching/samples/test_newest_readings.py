"""What `watch.step` returns."""

from __future__ import annotations

import math

import pytest

from safelight.watching.samples.newest_readings import NewestReadings


def test_the_newest_numbers_by_the_words_of_a_loop() -> None:
    newest = NewestReadings()
    stats = newest.stats
    assert stats == {"findings": ()}
    newest.add(3, {"loss/mean": 0.5, "loss/smooth": 0.6, "loss/deviation": 0.1, "gradient/norm": 2.0, "other": 1.0})
    newest.report("LOS007")
    assert stats == {
        "step": 3, "loss": 0.5, "loss_smooth": 0.6, "loss_std": 0.1, "grad_norm": 2.0, "findings": ("LOS007",)
    }  # fmt: skip
    newest.add(4, {"loss/mean": float("nan")})
    assert math.isnan(stats["loss_smooth"])
    assert math.isnan(stats["loss_std"])
    newest.add(5, {"gradient/norm": 3.0})
    newest.add(6, {"loss/mean": 0.5, "loss/smooth": 0.6, "loss/deviation": 0.1})
    newest.add(7, {"gradient/norm": 3.0})
    assert (stats["loss_smooth"], stats["grad_norm"]) == (0.6, 3.0)
    with pytest.raises(TypeError):
        stats["loss"] = 0.0  # type: ignore[index]
