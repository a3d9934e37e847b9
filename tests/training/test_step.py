"""One step: micro-batches add up, precision stays where it belongs, nothing non-finite gets through."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tiny import parts_of

from safelight.training import step as step_module
from safelight.training.build import Setup


def updates(parts: Setup, count: int = 3) -> list[torch.Tensor]:
    for step in range(count):
        parts.stepper.step(parts.loader.load(step), step)
    return [p.detach().clone() for p in parts.state.model.parameters()]


@pytest.mark.parametrize("micro_batches", [2, 4])
def test_micro_batches_give_the_update_of_the_whole_batch(micro_batches: int) -> None:
    whole, split = updates(parts_of()), updates(parts_of(train__accumulate=micro_batches))
    for a, b in zip(whole, split, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_gradient_of_micro_batches_equals_the_big_batch() -> None:
    """Before the optimizer, whose division would hide a wrong factor."""
    gradients = []
    for micro_batches in (1, 2, 4):
        parts = parts_of(train__accumulate=micro_batches)
        for micro in parts.loader.load(0):
            parts.stepper.accumulate(micro, 0)
        gradients.append(torch.cat([p.grad.flatten() for p in parts.state.model.parameters() if p.grad is not None]))
    for other in gradients[1:]:
        torch.testing.assert_close(gradients[0], other, rtol=1e-4, atol=1e-6)


def test_summed_micro_batches_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: dividing by the micro-batch instead of the batch sums what should be averaged."""
    parts = parts_of(train__accumulate=4)
    right = parts_of(train__accumulate=4)
    for micro in parts.loader.load(0):
        noised, answer = parts.stepper.forward(micro, 0)
        parts.stepper.objective.loss(answer, noised)[1].mean().backward()
    for micro in right.loader.load(0):
        right.stepper.accumulate(micro, 0)
    ours = step_module.global_norm([p.grad for p in right.state.model.parameters() if p.grad is not None])
    theirs = step_module.global_norm([p.grad for p in parts.state.model.parameters() if p.grad is not None])
    assert theirs / ours == pytest.approx(4, rel=1e-3)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_stays_inside_the_forward_pass(precision: str) -> None:
    parts = parts_of(train__precision=precision)
    seen: list[torch.dtype] = []
    parts.state.model.down_blocks[0].resnets[0].conv1.register_forward_hook(lambda *a: seen.append(a[2].dtype))
    view = parts.stepper.step(parts.loader.load(0), 0)
    assert seen[0] == {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    assert view.loss.dtype == torch.float32
    assert {p.dtype for p in parts.state.model.parameters()} == {torch.float32}
    assert {v.dtype for v in parts.state.ema.tensors().values()} == {torch.float32}


def test_fp16_gradients_are_unscaled_before_they_are_measured() -> None:
    full = parts_of().stepper
    half = parts_of(train__precision="fp16").stepper
    for stepper in (full, half):
        torch.nn.init.normal_(stepper.state.model.conv_out.weight, std=0.05, generator=torch.Generator().manual_seed(0))
    feed = parts_of().loader
    norms = [float(stepper.step(feed.load(0), 0).norm) for stepper in (full, half)]
    assert norms[1] == pytest.approx(norms[0], rel=0.02)
    assert float(half.state.loss_scale.value) == 65536


POISONS: dict[str, Callable[[Setup], object]] = {
    "loss": lambda parts: setattr(parts.stepper.objective, "weights", parts.stepper.objective.weights * torch.nan),
    "gradient": lambda parts: parts.state.model.conv_in.weight.register_hook(lambda g: g * torch.inf),
    "activation": lambda parts: parts.state.model.mid_block.register_forward_hook(lambda m, i, o: o * torch.nan),
}


def everything(parts: Setup) -> dict[str, torch.Tensor]:
    snapshot = parts.state.snapshot()
    return {f"{stem}/{name}": value for stem, group in snapshot.tensors.items() for name, value in group.items()}


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS.keys())
def test_non_finite_step_touches_nothing(poison: Callable[[Setup], object]) -> None:
    parts = parts_of(clipping__kind="adaptive")
    updates(parts, 2)
    before, running = everything(parts), parts.state.clipper.running.clone()
    poison(parts)
    view = parts.stepper.step(parts.loader.load(2), 2)
    after = everything(parts)
    assert float(view.refused) == 1
    assert parts.state.clipper.running == running
    for name, value in before.items():
        if name.startswith(("model/", "optimizer/")):
            assert torch.equal(after[name], value), name
    assert all(value.isfinite().all() for value in after.values())


def test_without_the_refusal_the_weights_would_be_poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the test above."""
    parts = parts_of()
    POISONS["gradient"](parts)
    prepare = step_module.prepare_update
    monkeypatch.setattr(step_module, "prepare_update", lambda o, lr, refused: prepare(o, lr, torch.zeros_like(refused)))
    parts.stepper.step(parts.loader.load(0), 0)
    assert not all(value.isfinite().all() for value in everything(parts).values())


def test_dropout_is_a_function_of_the_step() -> None:
    parts = parts_of(model__dropout=0.5)
    torch.nn.init.ones_(parts.state.model.conv_out.weight)
    micro = parts.loader.load(0)[0]
    torch.rand(7)  # whoever draws in between changes nothing
    first, again, other = (parts.stepper.forward(micro, step)[1] for step in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
