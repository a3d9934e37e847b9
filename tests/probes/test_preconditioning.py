"""A prediction that is made of output and input: what the network itself is asked for."""

from __future__ import annotations

from dataclasses import replace

import torch

from safelight.probes.forward_pass import Call, ForwardPass
from safelight.probes.preconditioning import Preconditioning

DRAW = torch.Generator().manual_seed(0)
X0, NOISE, OUTPUT = (torch.randn(16, 1, 6, 6, generator=DRAW) for _ in range(3))
SIGMA = torch.exp(torch.randn(16, 1, 1, 1, generator=DRAW))
LENGTH = (SIGMA.square() + 0.25).sqrt()
X_T = X0 + SIGMA * NOISE
SKIP, OUT = 0.25 / LENGTH.square(), SIGMA * 0.5 / LENGTH
CALL = Call((X_T / LENGTH, SIGMA.flatten().log() / 4), {}, OUTPUT)
PASSED = ForwardPass(torch.zeros(()), x0=X0, noise=NOISE, x_t=X_T, target=X0, pred=SKIP * X_T + OUT * OUTPUT, call=CALL)


def test_the_network_is_asked_for_edms_target() -> None:
    made = Preconditioning()
    found = made.undo(PASSED)
    assert made.is_needed
    assert found.pred is not None
    assert found.target is not None
    torch.testing.assert_close(found.target, (X0 - SKIP * X_T) / OUT, rtol=1e-3, atol=1e-4)
    assert torch.equal(found.pred, OUTPUT)
    assert found.x_t is X_T
    quiet = made.undo(replace(PASSED, call=None))
    assert (quiet.pred, quiet.target) == (None, None), "without its call nothing can be said"


def test_a_prediction_that_is_the_output_stays() -> None:
    for pred in (OUTPUT, OUTPUT.clone(), OUTPUT.double().float()):
        made, given = Preconditioning(), replace(PASSED, pred=pred)
        assert made.undo(given) is given
        assert not made.is_needed


def test_what_is_neither_stays() -> None:
    made, given = Preconditioning(), replace(PASSED, pred=OUTPUT.clamp(-0.5, 0.5))
    assert made.undo(given) is given
    assert not made.is_needed


def test_of_an_output_of_zero_nothing_is_known_yet() -> None:
    made = Preconditioning()
    first = made.undo(replace(PASSED, pred=SKIP * X_T, call=replace(CALL, output=torch.zeros_like(OUTPUT))))
    assert (first.pred, first.target) == (None, None)
    assert not made.is_needed
    made.undo(PASSED)
    assert made.is_needed
