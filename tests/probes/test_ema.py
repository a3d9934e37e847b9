"""after = α·before + (1 − α)·weights: α comes out exactly, and what is no average leaves a remainder."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from safelight.probes.ema import compare_with_weights, measure_ema

SIZES = ((8, 4), (8,), (4, 8))


def weights(seed: int, scale: float = 1.0) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=random) * scale for size in SIZES]


OLD, LIVE = weights(1), weights(2)


def mixed(decay: float, old: list[Tensor] = OLD, live: list[Tensor] = LIVE) -> list[Tensor]:
    return [decay * a + (1 - decay) * b for a, b in zip(old, live, strict=True)]


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, -0.5, 1.5])
def test_the_decay_is_recovered(decay: float) -> None:
    readings = measure_ema(OLD, mixed(decay), LIVE)
    assert readings["average/decay"] == pytest.approx(decay, abs=2e-7 / max(1 - decay, 1e-4) * 1e-3 + 2e-6)
    assert readings["average/left"] < 0.01
    assert readings["average/moved"] == pytest.approx(abs(1 - decay), rel=1e-3, abs=1e-6)


def test_an_average_that_stands_still() -> None:
    readings = measure_ema(OLD, [each.clone() for each in OLD], LIVE)
    assert (readings["average/moved"], readings["average/decay"], readings["average/left"]) == (0, 1, 0)


def test_nothing_to_follow() -> None:
    assert measure_ema(OLD, OLD, [each.clone() for each in OLD]) == {}


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("of another model", mixed(0.9, OLD, weights(3))),
        ("of parameters in another order", [*mixed(0.9)[:2], mixed(0.9, [OLD[2]], [LIVE[2].flip(0)])[0]]),
        ("of one tensor only", [mixed(0.9)[0], *OLD[1:]]),
        ("another decay for each tensor", [mixed(0.9)[0], *mixed(0.3)[1:]]),
        ("with noise", [each + 0.05 * torch.randn_like(each) for each in mixed(0.99)]),
    ],
)
def test_what_is_not_an_average(name: str, after: list[Tensor]) -> None:
    assert measure_ema(OLD, after, LIVE)["average/left"] > 0.1


def test_half_precision_is_seen_and_not_taken_for_another_disease() -> None:
    old = [each.bfloat16() for each in OLD]
    readings = measure_ema(old, [each.bfloat16() for each in mixed(0.9)], LIVE)
    assert readings["average/coarse"] == 1
    assert readings["average/left"] < 0.1
    assert readings["average/decay"] == pytest.approx(0.9, abs=0.01)
    still = measure_ema(old, [each.bfloat16() for each in mixed(0.99999, [o.float() for o in old])], LIVE)
    assert still["average/coarse"] == 1
    assert still["average/moved"] < 1e-5
    assert still["average/rounding"] > 1
    assert measure_ema(OLD, mixed(0.9), LIVE)["average/coarse"] == 0


def test_the_small_steps_of_a_long_average_are_no_rounding_error() -> None:
    close = [a + 1e-3 * b for a, b in zip(OLD, LIVE, strict=True)]
    readings = measure_ema(OLD, mixed(0.9999, OLD, close), close)
    assert readings["average/left"] < 0.1


def test_nothing_is_changed() -> None:
    before = [each.clone() for group in (OLD, LIVE) for each in group]
    measure_ema(OLD, mixed(0.9), LIVE)
    assert all(map(torch.equal, before, [*OLD, *LIVE]))


def test_tensors_that_are_copied_are_left_out() -> None:
    readings = measure_ema(OLD, [mixed(0.9)[0], LIVE[1].clone(), mixed(0.9)[2]], LIVE)
    assert readings["average/decay"] == pytest.approx(0.9, abs=1e-5)
    assert readings["average/left"] < 0.01


@pytest.mark.parametrize(
    ("name", "ema", "cosine", "shared"),
    [
        ("a copy", [each.clone() for each in LIVE], 1, 0),
        ("the weights themselves", LIVE, 1, 1),
        ("an average that lags", mixed(0.3), 0.9, 0),
        ("another network", OLD, 0, 0),
    ],
)
def test_an_average_is_one_of_these_weights(name: str, ema: list[Tensor], cosine: float, shared: float) -> None:
    readings = compare_with_weights(ema, LIVE)
    assert readings["average/cosine"] == pytest.approx(cosine, abs=0.2)
    assert readings["average/shared"] == shared


def test_an_average_of_zeros_has_no_direction() -> None:
    assert "average/cosine" not in compare_with_weights([torch.zeros_like(each) for each in LIVE], LIVE)
