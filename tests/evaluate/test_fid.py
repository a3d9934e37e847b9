"""`safelight.FID`: the number of the textbook's formula, whatever the images come in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from networks import photographs
from torch import Tensor, nn

import safelight
from safelight.errors import DataError, UsageError
from safelight.evaluate.features import Extractor, extract, own_extractor
from safelight.evaluate.fid import FID
from safelight.pictures.grid import encode_images

REAL, SAMPLES = (torch.from_numpy(part) for part in np.split(photographs(600, 8), [400]))


class Means(nn.Module):
    """Mean colours of four squares: 12 features."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(x, 2).flatten(1) * 10


@pytest.fixture(scope="module")
def means() -> Extractor:
    return own_extractor(Means(), name="means", side=8)


def textbook(a: np.ndarray, b: np.ndarray) -> float:
    """Mean and covariance, with the root of a matrix."""
    covariances = [np.cov(each, rowvar=False) for each in (a, b)]
    root = scipy.linalg.sqrtm(covariances[0] @ covariances[1])
    shift = a.mean(0) - b.mean(0)
    return float(shift @ shift + np.trace(covariances[0]) + np.trace(covariances[1]) - 2 * np.trace(root.real))


def test_it_is_the_textbooks_number(means: Extractor, tmp_path: Path) -> None:
    fid = FID(REAL, means, cache=tmp_path)
    for part in SAMPLES.split(37):
        fid.add(part)
    score = fid.compute()
    a, b = (extract(means, each).astype(np.float64) for each in (SAMPLES, REAL))
    assert score.value == pytest.approx(textbook(a, b), rel=1e-6)
    assert (score.n, score.real, score.name, fid.n) == (200, 400, "FD-means", 200)
    assert 0 < score.error < score.value
    assert score.unbiased < score.value
    assert str(score).startswith("FD-means ")
    assert "n = 200, 400 real" in str(score)


def test_it_is_the_textbooks_number_with_the_features_that_work_offline(tmp_path: Path) -> None:
    fid = safelight.FID(REAL[:60], cache=tmp_path)
    score = fid.add(SAMPLES[:50]).compute()
    extractor = fid._samples.extractor
    a, b = (extract(extractor, each).astype(np.float64) for each in (SAMPLES[:50], REAL[:60]))
    values = np.linalg.eigvals(np.cov(a, rowvar=False) @ np.cov(b, rowvar=False))
    shift, traces = a.mean(0) - b.mean(0), a.var(0, ddof=1).sum() + b.var(0, ddof=1).sum()
    expected = shift @ shift + traces - 2 * np.sqrt(np.clip(values.real, 0, None)).sum()
    assert score.value == pytest.approx(expected, rel=1e-3)
    assert not score.is_trusted
    assert "too few samples" in str(score)


@pytest.mark.parametrize(
    "samples",
    [SAMPLES, SAMPLES.float() / 255, SAMPLES.float() / 127.5 - 1, SAMPLES.numpy(), [SAMPLES[:150], SAMPLES[150:]]],
    ids=["bytes", "unit", "signed", "array", "batches"],
)
def test_the_range_and_the_container_do_not_matter(samples: Any, means: Extractor, tmp_path: Path) -> None:
    plain = FID(REAL, means, cache=tmp_path).add(SAMPLES).compute().value
    fid = FID(REAL.float() / 127.5 - 1, means, cache=tmp_path)
    found = fid.add(iter(samples) if isinstance(samples, list) else samples).compute()
    assert found.value == pytest.approx(plain, rel=1e-6)
    assert fid.ranges["real"] == "[-1, 1]"


def test_a_folder_is_the_same_as_its_images(means: Extractor, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    for name, content in encode_images(REAL.permute(0, 2, 3, 1).numpy()):
        (tmp_path / "real" / name).write_bytes(content)
    fid = FID(tmp_path / "real", means, cache=tmp_path / "cache")
    assert fid.ranges["real"] == "uint8"
    same = FID(REAL, means, cache=tmp_path / "cache").add(SAMPLES).compute()
    assert fid.add(SAMPLES).compute().value == pytest.approx(same.value, rel=1e-6)


def test_the_reference_is_kept_and_known_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    means = own_extractor(Means(), name="means", side=8)
    first = FID(REAL, means, cache=tmp_path).add(SAMPLES).compute()
    asked: list[int] = []

    def counted(*given: Any, **named: Any) -> np.ndarray:
        asked.append(1)
        return extract(*given, **named)

    monkeypatch.setattr("safelight.evaluate.fid.extract", counted)
    again = FID(REAL, means, cache=tmp_path)
    assert asked == []
    assert again.add(SAMPLES).compute() == first
    FID(REAL.flip(0), means, cache=tmp_path)
    assert len(asked) == 2  # the samples, and real images in another order


def test_reset_forgets_samples_only(means: Extractor, tmp_path: Path) -> None:
    fid = FID(REAL, means, cache=tmp_path)
    with pytest.raises(UsageError, match="add"):
        fid.compute()
    first = fid.add(SAMPLES[:100]).compute()
    fid.reset()
    assert fid.n == 0
    assert fid.add(SAMPLES[:100]).compute() == first
    with pytest.raises(UsageError, match="at least"):
        FID(REAL, means, cache=tmp_path).add(SAMPLES[:2]).compute()


@pytest.mark.parametrize("real", [torch.zeros(0, 3, 8, 8), "no-such-folder", 3])
def test_what_holds_no_images_is_refused(real: Any, means: Extractor) -> None:
    with pytest.raises(DataError):
        FID(real, means)


def test_inception_without_weights_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr("safelight.evaluate.networks.weights.importlib.util.find_spec", lambda _: None)
    with pytest.raises((DataError, UsageError), match="safelight weights get inception"):
        FID(REAL, "inception", cache=tmp_path)
