"""Gradients that fall from one part of a network to another, and what is said of it."""

from __future__ import annotations

import pytest
from histories import Series, measured

from safelight.diagnosis.finding import Fix
from safelight.diagnosis.rule import Detection
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory
from safelight.diagnosis.vanishing import or_vanishes, weakest_part

STEPS = [0, 1, 2, 3]


def run_with(**gradients: float) -> RunHistory:
    """One gradient for each part, and weights of length 10."""
    series: Series = {f"gradient/part/{part}": (STEPS, [size] * 4) for part, size in gradients.items()}
    series |= {f"weight/norm/{part}": (STEPS, [10.0] * 4) for part in gradients}
    return RunHistory(InMemoryReadings(measured(**series)))


@pytest.mark.parametrize(
    ("gradients", "part", "share"),
    [
        ({"a": 1.0, "b": 0.1}, "b", 0.1),
        ({"a": 1.0, "b": 1e-9, "time_embedding": 1e-12}, "b", 1e-9),
        ({"a": 1.0}, "", 1.0),
        ({"a": 0.0, "b": 0.0}, "", 1.0),
    ],
)
def test_the_weakest_part(gradients: dict[str, float], part: str, share: float) -> None:
    assert weakest_part(run_with(**gradients)) == (part, pytest.approx(share))


def test_parts_without_any_gradient_may_be_left_out() -> None:
    run = run_with(a=1.0, b=1e-3, c=0.0)
    assert weakest_part(run) == ("c", 0.0)
    assert weakest_part(run, above_zero=True) == ("b", pytest.approx(1e-3))


@pytest.mark.parametrize("fix", [None, Fix("Raise it.", {"optimizer.lr": 0.1})])
def test_advice_names_the_gradient_that_falls_away(fix: Fix | None) -> None:
    detect = or_vanishes(lambda run: Detection(7, "No gradient.", fix=fix), "Connect it.")
    usual, falls = (detect(run_with(a=1.0, b=b, c=0.0)) for b in (1e-3, 1e-8))
    assert usual is not None
    assert falls is not None
    assert usual.fix is fix
    assert falls.fix is not None
    assert "the gradient vanishes" in falls.fix.text
    assert "Residual connections" in falls.fix.text
    assert falls.fix.text.endswith("connect it." if fix is None else "raise it.")
    assert falls.fix.set == {}
    assert or_vanishes(lambda run: None, "")(run_with(a=1.0, b=1e-8)) is None
