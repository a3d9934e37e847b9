"""Images of the first steps, within a bound."""

from __future__ import annotations

import math

import pytest
import torch

from safelight.probes import seen_images
from safelight.probes.seen_images import SeenImages, SeenInputs
from safelight.yardstick.fixed_samples import SIZE


def test_images_and_labels_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_images, "MOST", SIZE + 10)
    seen = SeenImages()
    for start in range(0, 4 * SIZE, 50):
        labels = torch.arange(start, start + 50)
        seen.add(labels.half().view(-1, 1, 1, 1).expand(-1, 1, 2, 2), {"y": labels})
    assert seen.is_full
    assert len(seen) == len(seen.images()) == SIZE + 10
    assert seen.images().dtype == torch.float32
    assert seen.extras()["y"].tolist() == list(range(SIZE)) == seen.images()[:SIZE, 0, 0, 0].tolist()


def test_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_images, "MOST_BYTES", 100 * 16)
    seen = SeenImages()
    for _ in range(9):
        seen.add(torch.zeros(30, 1, 2, 2), {})
    assert len(seen) == 100


def test_what_is_seen_is_a_copy() -> None:
    seen, x0 = SeenImages(), torch.zeros(4, 1, 2, 2)
    seen.add(x0, {})
    x0 += 1
    assert not seen.images().any()


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (0.5, 0.25), (-0.8, 0.5)])
def test_the_scale_of_clean_images_is_that_of_noisy_ones_without_their_noise(mean: float, deviation: float) -> None:
    drawn, seen = torch.Generator().manual_seed(0), SeenInputs()
    for _ in range(16):
        kept = torch.rand(16, 1, 1, 1, generator=drawn)
        x0, noise = (torch.randn(16, 1, 8, 8, generator=drawn) for _ in range(2))
        a, s = kept.sqrt(), (1 - kept).sqrt()
        seen.add(a * (mean + deviation * x0) + s * noise, a, s)
    assert seen.mean_and_deviation() == pytest.approx((mean, deviation), abs=0.05)


def test_nothing_seen_has_no_scale() -> None:
    assert all(map(math.isnan, SeenInputs().mean_and_deviation()))
