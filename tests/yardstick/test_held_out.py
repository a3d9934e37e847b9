"""Held-out images beside those that are trained on, with the same noise and times."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from safelight.config.tree import Diffusion
from safelight.diffusion.objective import Objective
from safelight.diffusion.schedule import make_process
from safelight.yardstick.denoisers import ClosedFormDenoisers
from safelight.yardstick.fixed_samples import draw_samples
from safelight.yardstick.held_out import gap, hold_out

IMAGES = 64


def drawn(seed: int, copies: int, worse: float = 0.0) -> float | None:
    """A gap of losses that vary from image to image much more than from noise to noise."""
    draw = np.random.default_rng(seed)
    held = np.repeat(draw.normal(1.0 + worse, 0.3, IMAGES), copies) + draw.normal(0, 0.01, IMAGES * copies)
    trained = draw.normal(1.0, 0.01, IMAGES * copies)
    return gap(torch.tensor(trained), torch.tensor(held), np.repeat(np.arange(IMAGES), copies))


@pytest.mark.parametrize("copies", [1, 8])
def test_the_gap_has_standard_errors_though_images_come_again(copies: int) -> None:
    """With a standard error that took every sample for a new image, eight copies would give 2.8."""
    gaps = [drawn(seed, copies) for seed in range(400)]
    assert 0.85 < np.std(np.array(gaps, float)) < 1.15
    worse = drawn(0, copies, worse=1.0)
    assert worse is not None
    assert worse > 15


def test_few_images_have_no_gap() -> None:
    losses = torch.ones(128)
    assert gap(losses, losses, np.arange(128) % 31) is None
    assert gap(losses, losses, np.arange(128) % 32) == 0


@pytest.mark.parametrize("count", [40, 200])
def test_both_sets_have_the_same_noise_and_times(count: int) -> None:
    """Fewer images than samples come again, more are taken evenly."""
    drawn = torch.Generator().manual_seed(0)
    images, others = (torch.randn(size, 1, 4, 4, generator=drawn) for size in (128, count))
    settings = Diffusion()
    fixed = draw_samples(0, Objective(settings, make_process(settings), torch.device("cpu")), images)
    held_out = hold_out(others, fixed, ClosedFormDenoisers([images]))
    assert torch.equal(held_out.samples.noise, fixed.noise)
    assert torch.equal(held_out.samples.t, fixed.t)
    assert torch.equal(held_out.samples.x0, others[torch.from_numpy(held_out.ids)])
    assert len(np.unique(held_out.ids)) == min(count, len(fixed))
    losses = torch.ones(len(fixed))
    found = held_out.measure((losses, None), (2 * losses + 0.1 * torch.rand(len(fixed), generator=drawn), None))
    assert found.keys() - {"skill/held", "skill/held_exact"} == {"probe/raw", "probe/held_raw", "probe/held_gap"}
    assert found["probe/held_gap"] > 10
    both = held_out.measure((losses, losses), (losses, losses))
    assert both.keys() - found.keys() == {"probe/ema", "probe/held_ema"}
    assert both["probe/held_gap"] == 0
