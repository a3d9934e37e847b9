"""Which tensors explain another, and which do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from safelight.capturing.mixing import Numbers, explain_by, explain_input, relation_of
from safelight.capturing.trace import Made

DRAW = torch.Generator().manual_seed(0)
X0 = torch.rand(16, 3, 4, 4, generator=DRAW) * 2 - 1
NOISE = torch.randn(16, 3, 4, 4, generator=DRAW)
S = torch.rand(16, 1, 1, 1, generator=DRAW)


def clean(tensor: Tensor, order: int = 0) -> Made:
    return Made(tensor, order)


def drawn(tensor: Tensor, order: int = 1) -> Made:
    return Made(tensor, order, frozenset([order]), is_pure=True, is_draw=True)


@pytest.mark.parametrize(
    ("shown", "relation"),
    [
        ((1 - S) * X0 + S * NOISE, "flow"),
        ((1 - S**2).sqrt() * X0 + S * NOISE, "vp"),
        (X0 + 10 * S * NOISE, "ve"),
        ((X0 + 10 * S * NOISE) / (0.25 + (10 * S) ** 2).sqrt(), "edm"),
        (0.3 * X0 + S * NOISE, ""),
        ((1 - S) * X0 + NOISE, ""),  # EDM's with a sigma_data of 0
    ],
)
def test_a_mixture_is_explained(shown: Tensor, relation: str) -> None:
    found = explain_input(shown, [clean(X0 / 2 + 0.5), clean(X0, 2)], [drawn(NOISE)], Numbers())
    assert found is not None
    assert (found.relation, found.x0.tensor is X0) == (relation, True)
    assert found.left < 1e-6


@pytest.mark.parametrize(
    ("a", "s", "relation"),
    [(S.sqrt(), 1 - S, "table"), (S, (1 - S).sqrt(), "table"), (S, 1 - S, "flow"), (S**0.3, (1 - S) ** 0.3, "")],
)
@pytest.mark.parametrize("read", [S, S.sqrt(), 1 - S], ids=["kept", "root", "gone"])
def test_a_mixture_is_explained_by_what_was_read(a: Tensor, s: Tensor, relation: str, read: Tensor) -> None:
    """x0 and not √ᾱ·x0, though a is 1 then, as of a variance-exploding process."""
    shown, cleans = a * X0 + s * NOISE, [clean(X0), clean(a * X0, 2)]
    found = explain_input(shown, cleans, [drawn(NOISE)], Numbers(), readings=[read.flatten().double().numpy()])
    assert found is not None
    if relation:
        assert (found.relation, found.x0.tensor is X0) == (relation, True)
    else:
        assert found.relation != "table"


@pytest.mark.parametrize("shown", [X0, NOISE, torch.rand(16, 3, 4, 4), (1 - S) * X0 + S * NOISE + 0.01 * X0**2])
def test_what_is_no_mixture_is_not_known(shown: Tensor) -> None:
    assert explain_input(shown, [clean(X0)], [drawn(NOISE)], Numbers()) is None


def test_a_constant_factor_comes_after_and_a_coefficient_of_each_sample_is_a_part() -> None:
    shown = 0.3 * (1 - S) * X0 + S * NOISE
    candidates = [clean(X0, 0), clean(0.5 * X0, 2), clean((1 - S) * X0, 3)]
    found = explain_input(shown, candidates, [drawn(NOISE)], Numbers())
    assert found is not None
    assert found.x0.order == 2


def test_two_numbers_need_a_process_that_fits() -> None:
    points, noise, s = X0[:, 0, 0, :2], NOISE[:, 0, 0, :2], S[:, :, 0, 0]
    assert explain_input((1 - s) * points + s * noise, [clean(points)], [drawn(noise)], Numbers()) is not None
    assert explain_input(torch.rand(16, 2), [clean(points)], [drawn(noise)], Numbers()) is None


def test_half_precision_is_explained_more_loosely() -> None:
    shown = ((1 - S) * X0 + S * NOISE).bfloat16()
    assert explain_input(shown, [clean(X0)], [drawn(NOISE)], Numbers()) is not None
    assert explain_by(shown.float(), X0, NOISE, Numbers()) is None
    assert relation_of(np.array([0.6, 0.8]), np.array([0.8, 0.6])) == "vp"
