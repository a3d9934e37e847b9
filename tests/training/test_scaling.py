from __future__ import annotations

import pytest
import torch

from safelight.training.scaling import FIRST_SCALE, GROWTH_INTERVAL, LossScale

CPU = torch.device("cpu")
GOOD, BAD = torch.tensor(0.0), torch.tensor(1.0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_is_one_for_ever_unless_fp16(precision: str) -> None:
    scale = LossScale(precision, CPU)  # type: ignore[arg-type]
    gradients = [torch.ones(2)]
    for refused in (GOOD, BAD, GOOD):
        scale.adjust(refused)
        scale.unscale(gradients)
    assert float(scale.value) == 1
    assert torch.equal(gradients[0], torch.ones(2))


def test_unscaling_undoes_the_scale_exactly() -> None:
    """A power of two: no bit of a gradient is lost on the way."""
    scale = LossScale("fp16", CPU)
    weight = torch.tensor([0.1, -3.0, 1e-20], requires_grad=True)
    (weight.square().sum() * scale.value).backward()
    assert weight.grad is not None
    assert float(weight.grad[0]) == pytest.approx(0.2 * FIRST_SCALE)
    scale.unscale([weight.grad])
    assert torch.equal(weight.grad, 2 * weight.detach())


def test_an_overflow_halves_and_starts_the_count_again() -> None:
    scale = LossScale("fp16", CPU)
    for _ in range(GROWTH_INTERVAL - 1):
        scale.adjust(GOOD)
    scale.adjust(BAD)
    assert float(scale.value) == FIRST_SCALE / 2
    assert float(scale.good_steps) == 0
    for _ in range(GROWTH_INTERVAL - 1):
        scale.adjust(GOOD)
    assert float(scale.value) == FIRST_SCALE / 2, "one short of the interval"
    scale.adjust(GOOD)
    assert float(scale.value) == FIRST_SCALE
    assert float(scale.good_steps) == 0


def test_equals_torch_grad_scaler() -> None:
    """The same walk as torch's own scaler over 5,000 steps with an overflow now and then."""
    scale, growth = LossScale("fp16", CPU), torch.zeros((), dtype=torch.int32)
    theirs = torch.full((), FIRST_SCALE)
    overflow = torch.rand(5000, generator=torch.Generator().manual_seed(0)) < 0.0005
    assert overflow.any()
    for bad in overflow:
        torch._amp_update_scale_(theirs, growth, bad.float(), 2.0, 0.5, GROWTH_INTERVAL)
        scale.adjust(bad.float())
        assert float(scale.value) == float(theirs)


def test_a_scale_that_was_read_is_not_changed_behind_the_back() -> None:
    """StepView keeps the scale of its step, on the device, after the next adjustment."""
    scale = LossScale("fp16", CPU)
    seen = scale.value
    scale.adjust(BAD)
    assert float(seen) == FIRST_SCALE
    assert float(scale.value) == FIRST_SCALE / 2
