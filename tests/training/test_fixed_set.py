from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import parts_of

from safelight.data.batches import Batches
from safelight.data.images import Images
from safelight.training.fixed_set import FirstRows
from safelight.yardstick.denoisers import AT_ONCE


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
