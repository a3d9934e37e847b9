"""`safelight.estimate`: counted for any module, by a step of a copy without content."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import safelight
from safelight.config.resolve import resolve
from safelight.errors import UsageError
from safelight.model.estimate import ModelEstimate, estimate
from safelight.model.memory import Memory
from safelight.model.unet import build_unet
from safelight.requirements import trace_step


class Denoiser(nn.Module):
    def __init__(self, labels: int = 0) -> None:
        super().__init__()
        self.enter, self.leave, self.drop = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 1, 3, padding=1), nn.Dropout()
        self.time, self.kinds = nn.Embedding(10, 8), nn.Embedding(max(1, labels), 8)

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        kinds = 0 if labels is None else self.kinds(labels)
        return self.leave(self.drop(torch.relu(self.enter(x)) + (self.time(t) + kinds)[:, :, None, None]))


def test_the_parts_are_counted_and_nothing_is_touched() -> None:
    model = Denoiser()
    model.eval()
    model.register_forward_hook(lambda *_: pytest.fail("the model itself was called"))
    before, random = [p.detach().clone() for p in model.parameters()], torch.get_rng_state()
    found = safelight.estimate(model, (4, 1, 8, 8), optimizer="adamw", ema=1)
    numbers = sum(p.numel() for p in model.parameters())
    memory = found.memory
    assert found.parameters == numbers
    assert memory.parameters == memory.gradients == memory.ema == 4 * numbers
    assert memory.optimizer == 8 * (numbers - 8) + 4 * 5  # unused: the row of the labels; and a counter for each tensor
    assert memory.peak > memory.parameters + memory.optimizer + memory.activations
    assert all(map(torch.equal, model.parameters(), before))
    assert all(p.grad is None for p in model.parameters())
    assert not model.training
    assert torch.equal(random, torch.get_rng_state())
    assert json.loads(json.dumps(found.to_json()))["fits"] is True


def test_activations_grow_with_the_batch_and_moments_with_the_optimizer() -> None:
    model = Denoiser(labels=3)
    small = estimate(model, (2, 1, 8, 8), torch.optim.Adam)
    large = estimate(model, (8, 1, 8, 8), torch.optim.SGD(model.parameters(), lr=1.0), labels=True)
    assert 3.5 < large.memory.activations / small.memory.activations < 4.5
    assert large.memory.optimizer < small.memory.optimizer
    half = estimate(model, (8, 1, 8, 8), "sgd", precision="bf16", labels=True)
    assert half.memory.activations < large.memory.activations


def test_it_agrees_with_the_estimate_of_a_run() -> None:
    """The same network by the same trace; the trainer's own step keeps two EMAs, clips and measures beside it."""
    settings = {"model.widths": (16,), "model.norm_groups": 8, "model.attention": (), "model.conditional": False}
    config = resolve(preset="digits", settings=settings)
    unet = build_unet(config.model, image_size=8, channels=1, classes=0, seed=0)
    ours, theirs = estimate(unet, (16, 1, 8, 8), ema=1).memory, trace_step(config, 16)
    assert ours.parameters == theirs.parameters
    assert abs(ours.optimizer / theirs.optimizer - 1) < 0.01
    assert abs(ours.activations / theirs.activations - 1) < 0.05


def test_a_module_of_images_alone_and_the_largest_batch() -> None:
    found = estimate(nn.Conv2d(1, 1, 3), (2, 1, 8, 8), "sgd", largest=True)
    assert found.largest_batch is not None
    assert found.largest_batch > 1000
    assert f"up to {found.largest_batch:,} images at a time" in str(found)


@pytest.mark.parametrize(
    ("model", "shape", "named", "words"),
    [
        (Denoiser(), (4,), {}, "such as"),
        (Denoiser(), (4, 1, 0, 8), {}, "such as"),
        (Denoiser(), (4, 3, 8, 8), {}, "cannot be traced"),
        (Denoiser(), (4, 1, 8, 8), {"optimizer": "adamx"}, "adamw"),
        (Denoiser(), (4, 1, 8, 8), {"precision": "fp8"}, "bf16"),
        (Denoiser().requires_grad_(False), (4, 1, 8, 8), {}, "requires a gradient"),
    ],
)
def test_what_cannot_be_estimated_is_said(model: nn.Module, shape: tuple[int, ...], named: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        estimate(model, shape, **named)


def test_what_does_not_fit_is_said() -> None:
    found = ModelEstimate(10, 4, Memory(40, 40, 80, 0, 100, 300), available=200)
    assert not found.fits
    assert "no: 200 B are available" in str(found)
