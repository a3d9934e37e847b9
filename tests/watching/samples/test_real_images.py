"""Images of any form become bytes in squares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from safelight.errors import DataError
from safelight.watching.samples.real_images import images_of, square

IMAGES = torch.linspace(-1, 1, 40 * 3 * 6 * 4).reshape(40, 3, 6, 4)


@pytest.mark.parametrize(
    "data",
    [
        IMAGES,
        IMAGES.numpy(),
        TensorDataset(IMAGES, torch.zeros(40)),
        DataLoader(TensorDataset(IMAGES), batch_size=7),
        IMAGES / 2 + 0.5,
        ((IMAGES + 1) * 127.5).round().to(torch.uint8),
    ],
    ids=["tensor", "array", "Dataset", "DataLoader", "[0, 1]", "bytes"],
)
def test_every_form_gives_the_same_bytes(data: Any) -> None:
    found = images_of(data)
    assert found.pixels.shape == (40, 4, 4, 3)
    expected = ((square(IMAGES) + 1) * 127.5).round().permute(0, 2, 3, 1).numpy()
    assert np.abs(found.pixels.astype(float) - expected).max() <= 1
    assert len(found.fingerprint) == 64


@pytest.mark.parametrize("data", [IMAGES[:5], "photos", torch.zeros(40, 4, 8, 8), 3], ids=str)
def test_what_is_no_set_of_images_is_refused(data: Any) -> None:
    with pytest.raises(DataError):
        images_of(data)
