from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from safelight.config.tree import Clipping
from safelight.training.clipping import Clipper, global_norm

CPU = torch.device("cpu")


def gradients(norm: float, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(shape, generator=generator) for shape in ((3, 4), (5,), (2, 2, 2))]
    length = math.sqrt(sum(float(p.square().sum()) for p in parts))
    return [p * (norm / length) for p in parts]


def clip(clipper: Clipper, norm: float) -> tuple[float, float]:
    """(norm after clipping, limit that was used)."""
    parts = gradients(norm)
    limit = clipper.clip(parts, global_norm(parts))
    return float(global_norm(parts)), float(limit)


@pytest.mark.parametrize(
    ("norm", "after"), [(0.3, 0.3), (0.999, 0.999), (1.0, 1.0), (1.001, 1.0), (50.0, 1.0), (0.0, 0.0), (1e15, 1.0)]
)
def test_fixed_limit(norm: float, after: float) -> None:
    found, limit = clip(Clipper(Clipping(kind="fixed", limit=1.0), CPU), norm)
    assert found == pytest.approx(after, rel=1e-5)
    assert limit == 1


@pytest.mark.parametrize("norm", [0.5, 7.0])
def test_small_gradients_keep_every_bit(norm: float) -> None:
    parts, before = gradients(norm), gradients(norm)
    Clipper(Clipping(kind="none"), CPU).clip(parts, global_norm(parts))
    assert all(torch.equal(a, b) for a, b in zip(parts, before, strict=True))
    Clipper(Clipping(kind="fixed", limit=7.5), CPU).clip(parts, global_norm(parts))
    assert all(torch.equal(a, b) for a, b in zip(parts, before, strict=True))


@pytest.mark.parametrize("norm", [0.1, 0.99, 3.0, 1000.0])
def test_equals_torch(norm: float) -> None:
    parts, weights = gradients(norm), [nn.Parameter(torch.zeros_like(g)) for g in gradients(norm)]
    for weight, gradient in zip(weights, gradients(norm), strict=True):
        weight.grad = gradient
    theirs = torch.nn.utils.clip_grad_norm_(weights, 1.0)
    ours = global_norm(parts)
    Clipper(Clipping(limit=1.0), CPU).clip(parts, ours)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-6)
    assert all(torch.allclose(g, w.grad, rtol=1e-5) for g, w in zip(parts, weights, strict=True))


def adaptive(**settings: float) -> Clipper:
    return Clipper(Clipping(kind="adaptive", **settings), CPU)  # type: ignore[arg-type]


def test_adaptive_limit_follows_the_running_norm() -> None:
    clipper = adaptive(factor=2.0, decay=0.9, lowest=0.01, highest=10.0)
    assert clip(clipper, 1.0) == (pytest.approx(1.0), 10.0), "nothing is known at first: the highest limit"
    for _ in range(100):
        found, limit = clip(clipper, 1.0)
        assert (found, limit) == (pytest.approx(1.0), pytest.approx(2.0))
    found, limit = clip(clipper, 50.0)
    assert found == pytest.approx(2.0), "a spike is cut to twice the usual norm"
    assert float(clipper.running) == pytest.approx(1.1), "and enters no larger than that"
    for _ in range(300):
        clip(clipper, 0.5)
    assert float(clipper.limit()) == pytest.approx(1.0), "it comes down with the run"


@pytest.mark.parametrize(
    ("norm", "limit"), [(1e-6, 0.01), (0.001, 0.01), (0.3, 0.6), (4.0, 8.0), (7.0, 10.0), (1e6, 10.0)]
)
def test_adaptive_limit_is_bounded_on_both_sides(norm: float, limit: float) -> None:
    clipper = adaptive(factor=2.0, decay=0.9, lowest=0.01, highest=10.0)
    for _ in range(200):
        clip(clipper, norm)
    assert float(clipper.limit()) == pytest.approx(limit, rel=1e-4)


@pytest.mark.parametrize("norm", [math.nan, math.inf])
@pytest.mark.parametrize("seen_before", [0, 5])
def test_a_norm_that_is_not_finite_does_not_enter_the_state(norm: float, seen_before: int) -> None:
    clipper = adaptive()
    for _ in range(seen_before):
        clip(clipper, 1.0)
    before = clipper.running.clone()
    parts = gradients(1.0)
    parts[0][0, 0] = norm
    clipper.clip(parts, global_norm(parts))
    assert torch.equal(clipper.running, before)
    assert clipper.limit().isfinite()
    clip(clipper, 1.0)
    assert clipper.running.isfinite()


def test_the_limit_returned_is_the_one_that_was_used() -> None:
    clipper = adaptive(decay=0.5)
    clip(clipper, 1.0)
    parts = gradients(100.0)
    limit = clipper.clip(parts, global_norm(parts))
    assert float(limit) == pytest.approx(2.0)
    assert float(global_norm(parts)) == pytest.approx(2.0, rel=1e-5)
    assert float(clipper.limit()) == pytest.approx(3.0), "the next one has moved on"


@pytest.mark.parametrize("kind", ["fixed", "none"])
def test_other_kinds_keep_no_state(kind: str) -> None:
    clipper = Clipper(Clipping(kind=kind), CPU)  # type: ignore[arg-type]
    clip(clipper, 5.0)
    assert float(clipper.running) == 0
