from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from safelight.config.tree import Clipping
from safelight.errors import UsageError
from safelight.training.clipping import AdaptiveClipper, Clipper, global_norm

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


def test_the_first_limit_is_the_initial_one() -> None:
    clipper = adaptive(factor=2.0, initial=1.0)
    assert clip(clipper, 50.0) == (pytest.approx(1.0), 1.0)
    assert clip(clipper, 50.0)[1] == pytest.approx(2.0), "from then on the running norm, which saw no more than 1"


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_gradients_that_are_not_finite_are_left_as_they_are(norm: float) -> None:
    """Scaled, all would be NaN, and the one that began could no longer be named."""
    parts, before = gradients(3.0), gradients(3.0)
    parts[1][0] = before[1][0] = norm
    Clipper(Clipping(limit=1.0), CPU).clip(parts, global_norm(parts))
    assert all(torch.equal(a, b) or not b.isfinite().all() for a, b in zip(parts, before, strict=True))
    assert [bool(part.isfinite().all()) for part in parts] == [True, False, True]


def test_the_norm_of_half_precision_is_summed_in_fp32() -> None:
    many = torch.full((1 << 16,), 1.0, dtype=torch.bfloat16)
    assert float(global_norm([many, torch.ones(1, dtype=torch.bfloat16)])) == pytest.approx(math.sqrt(2**16 + 1))


# The part: AdaptiveClipper in a loop of one's own

NORMS = [0.5, 0.7, 30.0, 0.4, math.nan, 0.6, math.inf, 0.5, 0.001, 2.0]


def weights_with(norm: float, seed: int = 0) -> list[nn.Parameter]:
    weights = [nn.Parameter(torch.zeros_like(g)) for g in gradients(1.0)]
    for weight, gradient in zip(weights, gradients(norm, seed), strict=True):
        weight.grad = gradient
    return [*weights, nn.Parameter(torch.zeros(3))]  # one without a gradient


def test_part_equals_a_plain_loop_to_the_bit() -> None:
    weights = weights_with(1.0)
    clipper, running = AdaptiveClipper(iter(weights), factor=3.0, decay=0.9, initial=1.0), None
    for number, norm in enumerate(NORMS):
        plain = gradients(norm, number)
        for weight, gradient in zip(weights, gradients(norm, number), strict=False):
            weight.grad = gradient
        returned = clipper()
        length = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in plain]))
        limit = torch.tensor(1.0) if running is None else (running * 3.0).clamp(0.01, 10.0)
        if length.isfinite():
            for gradient in plain:
                gradient.mul_((limit / length).clamp(max=1.0))
            seen = torch.minimum(length, limit)
            running = seen if running is None else running.lerp(seen, 1 - 0.9)
        assert torch.equal(clipper.limit, limit)
        assert returned.isfinite() == length.isfinite()
        if length.isfinite():
            assert torch.equal(returned, length)
            assert all(torch.equal(w.grad, g) for w, g in zip(weights, plain, strict=False))  # type: ignore[arg-type]
        assert running is not None
        assert torch.equal(clipper.running, running)


def test_part_continues_from_its_state() -> None:
    first, second = (AdaptiveClipper(weights_with(1.0)) for _ in range(2))
    for _ in range(3):
        first()
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.running, first.running)
    assert torch.equal(second.limit, second._clipper.limit())
    assert second.running.data_ptr() != first.running.data_ptr()


class NoSync(TorchDispatchMode):
    """Refuses what would wait for a GPU."""

    def __torch_dispatch__(self, function, types, arguments=(), named=None):  # type: ignore[no-untyped-def]
        assert function.overloadpacket not in (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero)
        return function(*arguments, **(named or {}))


def test_part_never_waits_for_the_device() -> None:
    clipper = AdaptiveClipper(weights_with(5.0))
    with NoSync():
        norm = clipper()
        clipper.state_dict()
        with pytest.raises(AssertionError):
            float(norm)  # the control


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"factor": 0.0}, "factor is 0.0, but it must be greater than 0"),
        ({"decay": 1.5}, "decay is 1.5, but it must lie between 0 and 1"),
        ({"lowest": 5.0, "highest": 1.0}, "lowest is 5.0, above highest"),
        ({"initial": 11.0}, "initial is 11.0, but it must lie between lowest, 0.01, and highest, 10.0"),
        ({"highest": math.inf}, "highest is inf, but it must be a finite number"),
    ],
)
def test_numbers_that_cannot_be_are_refused(given: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        AdaptiveClipper(weights_with(1.0), **given)


def test_misuse_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="was given no parameters"):
        AdaptiveClipper(iter(()))
    with pytest.raises(UsageError, match=r"after loss.backward"):
        AdaptiveClipper([nn.Parameter(torch.ones(2))])()
    for bad in ({}, {"running": 3}, {"running": torch.tensor(math.nan)}, {"running": torch.ones(2)}):
        with pytest.raises(UsageError, match="not the state of an AdaptiveClipper"):
            AdaptiveClipper(weights_with(1.0)).load_state_dict(bad)
