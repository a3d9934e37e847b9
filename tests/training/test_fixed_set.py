from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import parts_of

from safelight.data.batches import Batches
from safelight.data.images import Images
from safelight.training.fixed_set import FirstRows, gap
from safelight.yardstick.denoisers import AT_ONCE

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


def test_all_images_are_read_each_once() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (AT_ONCE + 100, 4, 4, 1), np.uint8)
    rows = FirstRows(Batches(Images(pixels, None, (), ""), seed=1, batch_size=len(pixels)), len(pixels))
    for _ in range(2):  # a filter reads them more than once
        read = torch.cat(list(rows)).flatten(1)
        assert sorted(read.sum(1).tolist()) == pytest.approx(
            sorted((torch.from_numpy(pixels).float() / 127.5 - 1).flatten(1).sum(1).tolist()), abs=1e-4
        )


def test_the_skill_of_the_floor_is_a_constant_of_the_training_images() -> None:
    setup = parts_of(data__held_out=0.1)
    assert setup.held_out_set is not None
    losses = torch.ones(len(setup.fixed_set))
    found = [setup.fixed_set.skills(losses * size, losses * size) for size in (0.5, 0.9)]
    assert found[0]["skill/exact"] == found[1]["skill/exact"] > 1
    assert found[0]["skill/raw"] > found[1]["skill/raw"]
    assert setup.held_out_set.skills(losses, losses).keys() == {"skill/held", "skill/held_exact"}
