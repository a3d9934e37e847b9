"""The range of samples is seen in the first of them and held."""

from __future__ import annotations

import pytest
import torch

from safelight.watching.samples.sampled_images import SampledImages


@pytest.mark.parametrize(
    ("given", "first", "second", "expected"),
    [
        (None, (0.0, 1.0), (0.0, 1.0), 1.0),
        (None, (0.0, 1.0), (-0.9, 1.0), 1.0),  # a stage without dark pixels came first
        (None, (-1.0, 1.0), (0.0, 0.5), 0.5),
        ("[-1, 1]", (0.0, 1.0), (0.0, 0.5), 0.5),
        (None, (-0.01, 1.2), (0.0, 0.5), 0.0),  # [0, 1], which a sampler left a little
    ],
)
def test_the_range(given: str | None, first: tuple[float, float], second: tuple[float, float], expected: float) -> None:
    images = SampledImages(given)
    for low, high in (first, second):
        found = images.of(torch.tensor([low, high]).reshape(1, 1, 1, 2), 1)
    assert float(found.max()) == pytest.approx(expected)
