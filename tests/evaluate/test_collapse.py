"""Real digits with classes, variety or sharpness taken away are named for what they lack; other real ones never."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn import functional

from safelight.diagnosis.sample_quality import SampleQuality, judge_samples
from safelight.evaluate.examination import Distances, Real, examine, measure_distances
from safelight.evaluate.features import Extractor, extract, load_extractor
from safelight.evaluate.networks.pixels import quantise
from safelight.yardstick.linear import fit_linear

COUNT, HALF = 256, 898


@cache
def extractor() -> Extractor:
    return load_extractor("lite0", image_size=8)


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """uint8 [n, 1, 8, 8] and classes, shuffled; the first half is the reference."""
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(pixels))
    return (pixels[order] * 255 / 16).round().astype(np.uint8).reshape(-1, 1, 8, 8), labels[order]


@cache
def features() -> np.ndarray:
    return extract(extractor(), digits()[0])


@cache
def real() -> Real:
    return Real(features()[:HALF], extractor().label, components=64)


@cache
def gaussian_images() -> np.ndarray:
    scaled = torch.from_numpy(digits()[0][:HALF].astype(np.float32) / 127.5 - 1)
    return quantise(fit_linear([scaled]).draw(COUNT, 0)).numpy()


@cache
def gaussian() -> Distances:
    return measure_distances(extract(extractor(), gaussian_images()), real())


def judge(found: np.ndarray, against: Real | None = None) -> SampleQuality:
    return judge_samples(examine(found, against or real(), gaussian=gaussian()).to_json())


def with_shares(*shares: float) -> np.ndarray:
    """Other real digits, their classes drawn with these weights."""
    weights = np.asarray(shares)[digits()[1][HALF:]]
    return features()[HALF:][np.random.default_rng(0).choice(len(weights), COUNT, p=weights / weights.sum())]


def repeated(different: int) -> np.ndarray:
    return features()[HALF:][np.random.default_rng(0).integers(0, different, COUNT)]


def shrunk(share: float) -> np.ndarray:
    mean, own = digits()[0][:HALF].mean(0), digits()[0][HALF : HALF + COUNT]
    return extract(extractor(), np.rint(mean + share * (own - mean)).astype(np.uint8))


def blurred() -> np.ndarray:
    own = torch.from_numpy(digits()[0][HALF : HALF + COUNT].astype(np.float32))
    soft = functional.avg_pool2d(functional.pad(own, (1, 1, 1, 1), mode="replicate"), 3, 1)
    return extract(extractor(), soft.round().to(torch.uint8))


def noise() -> np.ndarray:
    return extract(extractor(), np.random.default_rng(0).integers(0, 256, (COUNT, 1, 8, 8)).astype(np.uint8))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        pytest.param(lambda: with_shares(9, *[1] * 9), "crowded", id="half of them one class"),
        pytest.param(lambda: with_shares(1, 1, 1, *[0] * 7), "missing", id="three classes of ten"),
        pytest.param(lambda: repeated(12), "narrow", id="twelve images"),
        pytest.param(lambda: shrunk(0.6), "vague", id="shrunk to 0.6"),
        pytest.param(blurred, "vague", id="blurred"),
        pytest.param(lambda: extract(extractor(), gaussian_images()), "mush", id="Gaussian"),
        pytest.param(noise, "mush", id="noise"),
        # near misses
        pytest.param(lambda: with_shares(2, *[1] * 9), None, id="one class twice as often"),
        pytest.param(lambda: with_shares(0, *[1] * 9), None, id="one class of ten missing"),
        pytest.param(lambda: shrunk(0.95), None, id="shrunk to 0.95"),
    ],
)
def test_what_is_lacking_is_named(make: Callable[[], np.ndarray], kind: str | None) -> None:
    assert judge(make()).kind == kind


@pytest.mark.parametrize("count", [128, 256])
@pytest.mark.parametrize("seed", range(4))
def test_other_real_images_are_good(seed: int, count: int) -> None:
    order = np.random.default_rng(100 + seed).permutation(len(features()))
    against = Real(features()[order[:HALF]], extractor().label, components=64)
    found = judge(features()[order[HALF : HALF + count]], against)
    assert found.kind is None
    assert found.sentence.startswith("Good")
    assert found.near is not None
    assert found.near < 0.25


def test_what_lies_off_the_main_axes_of_real_images_is_not_like_them() -> None:
    """On these axes alone it would be, as noise is on those of garments: there it lies in the middle."""
    rng = np.random.default_rng(0)
    widths = np.repeat([10.0, 0.1], [4, 28])
    known, samples = rng.normal(size=(600, 32)) * widths, rng.normal(size=(COUNT, 32)) * 0.3 * widths
    samples[:, 4:] += 4
    found = {figure.name: figure.value for figure in examine(samples, Real(known, "FD", components=4)).figures}
    assert found["precision"] < 0.1
    assert found["density"] < 0.1
