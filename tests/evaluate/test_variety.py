"""`safelight.Diversity`: five numbers against real images, and advice only where one is worse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import safelight
from safelight.errors import UsageError
from safelight.evaluate.features import Extractor, own_extractor
from safelight.evaluate.variety import Diversity, DiversityReport

ORDER = torch.randperm(1797, generator=torch.Generator().manual_seed(0))
DIGITS = (torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1)[ORDER]
LABELS = torch.tensor(load_digits().target)[ORDER]
REAL, SAMPLES, OF = DIGITS[:1000], DIGITS[1000:], LABELS[1000:]


class Pixels(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :1].flatten(1)


@pytest.fixture(scope="module")
def pixels() -> Extractor:
    return own_extractor(Pixels(), name="pixels", side=8)


def report(samples: Tensor, pixels: Extractor, folder: Path) -> DiversityReport:
    return Diversity(REAL, pixels, cache=folder).add(samples).compute()


def test_real_images_are_as_varied_as_real_images(pixels: Extractor, tmp_path: Path) -> None:
    found = report(SAMPLES, pixels, tmp_path)
    assert found.is_good, str(found)
    assert found.kind is None
    assert found.n == 797
    assert found.sample_distance / found.real_distance == pytest.approx(found.distance_ratio.value)
    assert 0.9 < found.variance_ratio.value < 1.1


@pytest.mark.parametrize(
    ("name", "samples", "kinds", "advice"),
    [
        ("one digit", SAMPLES[OF == 0].repeat(4, 1, 1, 1), {"crowded", "narrow", "missing"}, "Balance"),
        ("two digits", SAMPLES[OF < 2], {"missing", "crowded"}, "Balance"),
        ("few images", SAMPLES[:6].repeat(50, 1, 1, 1), {"narrow", "missing", "crowded"}, "EMA"),
        ("faded", SAMPLES * 0.4 + 0.6 * REAL.mean(0), {"vague", "narrow"}, "Train longer"),
    ],
)
def test_what_lacks_variety_is_named(
    name: str, samples: Tensor, kinds: set[str], advice: str, pixels: Extractor, tmp_path: Path
) -> None:
    found = report(samples, pixels, tmp_path)
    assert found.kind in kinds, str(found)
    assert found.code is not None
    assert advice in " ".join(found.advice)
    assert found.code in str(found)
    assert json.loads(json.dumps(found.to_json()))["kind"] == found.kind


def test_noise_is_not_called_varied(pixels: Extractor, tmp_path: Path) -> None:
    noise = torch.rand(400, 1, 8, 8, generator=torch.Generator().manual_seed(1)) * 2 - 1
    found = report(noise, pixels, tmp_path)
    assert not found.is_good
    assert found.real_coverage.value < 0.5


def test_too_few_images_are_refused(pixels: Extractor, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 100"):
        Diversity(REAL[:50], pixels, cache=tmp_path)
    with pytest.raises(UsageError, match="more than 5"):
        Diversity(REAL, pixels, cache=tmp_path).add(SAMPLES[:4]).compute()


def test_it_works_offline_and_can_be_used_again(tmp_path: Path) -> None:
    diversity = safelight.Diversity(REAL[:200], cache=tmp_path)
    first = diversity.add(SAMPLES[:100]).compute()
    diversity.reset()
    assert diversity.add(SAMPLES[:100]).compute() == first
    assert diversity.ranges == {"real": "[-1, 1]", "samples": "[-1, 1]"}
