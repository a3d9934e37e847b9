"""FID in anyone's loop: real images once, samples as they come, one number with its error."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from safelight.config.tree import Data
from safelight.data.cache import cache_root
from safelight.data.sources import Arrays, open_source
from safelight.data.tensors import PixelRange, chunks_of
from safelight.errors import DataError, UsageError
from safelight.evaluate.features import Extractor, extract, load_extractor
from safelight.evaluate.frechet import frechet
from safelight.evaluate.piles import pile_features
from safelight.evaluate.real import kept_features
from safelight.evaluate.reference import fit_reference
from safelight.words import with_error

FeatureName = Literal["lite0", "inception"]


@dataclass(frozen=True, slots=True)
class FIDScore:
    """`str` of it is what may be quoted."""

    value: float  # the plain estimator that everybody computes: mean and covariance, all components
    error: float  # standard error, by the jackknife over samples
    n: int  # samples
    name: str  # FID for Inception features, FD-lite0 for others: those numbers are not comparable with published ones
    unbiased: float  # without the bias of few samples, which makes `value` too high
    real: int  # images
    is_trusted: bool  # whether there are enough samples for `unbiased` and `error`

    def __str__(self) -> str:
        doubt = "" if self.is_trusted else "; too few samples for its error to be trusted"
        bias = f"; {self.unbiased:.3g} without the bias of so few" if self.value - self.unbiased > self.error else ""
        return f"{self.name} {with_error(self.value, self.error)} (n = {self.n:,}, {self.real:,} real{bias}{doubt})"


class SampleFeatures:
    """Features of real images, kept from run to run, and of the samples that were added."""

    def __init__(
        self,
        real_images: Any,
        features: FeatureName | Extractor = "lite0",
        *,
        value_range: str | None = None,
        device: str | torch.device = "cpu",
        batch_size: int = 64,
        cache: str | Path | None = None,
    ) -> None:
        self._range, self._batch_size = PixelRange("samples", value_range), batch_size
        self._real_range = PixelRange("real images")
        self._warnings: list[str] = []
        is_path = isinstance(real_images, str | Path)
        chunks = None if is_path else self._chunks(real_images, self._real_range, "real images")
        first = None if chunks is None else next(chunks, None)
        if chunks is not None and first is None:
            raise DataError("There are no real images.")
        side = None if first is None else max(first.shape[2:])
        self.extractor = (
            features if isinstance(features, Extractor) else load_extractor(features, image_size=side, device=device)
        )
        root = Path(cache) if cache is not None else cache_root(Data(), self._warnings.append)
        if first is None or chunks is None:
            self.real = self._of_folder(str(real_images), root)
        else:
            self.real = self._of_images(torch.cat([first, *chunks]), root)
        self._found: list[np.ndarray] = []

    @property
    def ranges(self) -> dict[str, str]:
        """The ranges of the values of both, as they were understood: uint8, [0, 1] or [-1, 1]."""
        return {"real": self._real_range.words, "samples": self._range.words}

    @property
    def n(self) -> int:
        return sum(map(len, self._found))

    def add(self, samples: Any) -> None:
        """Samples of any number: a tensor, an array, a Dataset or an iterable of batches."""
        taken = list(self._chunks(samples, self._range, "samples"))
        if taken:
            self._found.append(self._extract(iter(taken)))

    def reset(self) -> None:
        """Forgets the samples, not the real images."""
        self._found.clear()

    def features(self) -> np.ndarray:
        if not self._found:
            raise UsageError("No samples were added yet. Call add(samples) first.")
        return np.concatenate(self._found)

    def _chunks(self, images: Any, range_: PixelRange, of: str) -> Iterator[Tensor]:
        return (range_.to_bytes(chunk) for chunk in chunks_of(images, of))

    def _extract(self, chunks: Tensor | Iterator[Tensor]) -> np.ndarray:
        return extract(self.extractor, chunks, batch_size=self._batch_size)

    def _of_images(self, images: Tensor, root: Path) -> np.ndarray:
        identity = {"bytes": hashlib.sha256(images.numpy().tobytes()).hexdigest(), "shape": str(tuple(images.shape))}
        return kept_features(identity, len(images), self.extractor, partial(self._extract, images), cache=root)

    def _of_folder(self, source: str, root: Path) -> np.ndarray:
        """A folder by the names, sizes and times of its files."""
        found = open_source(Data(source=source))
        if isinstance(found, Arrays):
            stamp = found.stamp
        else:
            files = sorted((each.name, each.size, each.modified) for each in found.entries())
            stamp = hashlib.sha256(repr(files).encode("utf-8", "surrogateescape")).hexdigest()
        self._real_range.to_bytes(torch.zeros(1, 1, 1, 1, dtype=torch.uint8))  # files hold bytes
        identity = {"source": str(Path(source).expanduser().resolve()), "stamp": stamp}
        compute = partial(pile_features, source, self.extractor, say=self._warnings.append)
        return kept_features(identity, None, self.extractor, compute, cache=root)


class FID:
    """The Fréchet distance of samples from real images.

    `real_images`: a tensor or array [n, channels, height, width], a Dataset, a DataLoader, or the path of a folder;
    their features are computed once and kept in the cache. `features`: `lite0`, which works offline and is called
    FD-lite0, or `inception`, whose distance is FID (`safelight weights get inception`). Values may be uint8, [0, 1] or
    [-1, 1]: `ranges` says which were seen, `value_range` decides it for samples.
    """

    def __init__(self, real_images: Any, features: FeatureName | Extractor = "lite0", **settings: Any) -> None:
        """`settings`: `value_range`, `device`, `batch_size` and `cache` of `SampleFeatures`."""
        self._samples = SampleFeatures(real_images, features, **settings)
        self._reference = fit_reference(self._samples.real)

    def __repr__(self) -> str:
        return f"FID(features={self._samples.extractor.label!r}, real={len(self._samples.real)}, n={self.n})"

    @property
    def ranges(self) -> dict[str, str]:
        return self._samples.ranges

    @property
    def n(self) -> int:
        """Samples that were added."""
        return self._samples.n

    def add(self, samples: Any) -> FID:
        """More samples; their features are held until `reset`: 5 kB each for lite0, 8 kB for inception."""
        self._samples.add(samples)
        return self

    def compute(self) -> FIDScore:
        """The score of all samples so far; more may be added afterwards."""
        found = frechet(self._samples.features(), self._reference)
        name = self._samples.extractor.label
        return FIDScore(
            found.value, found.error, found.count, name, found.corrected, found.reference_count, found.trusted
        )

    def reset(self) -> None:
        """Forgets the samples, not the real images."""
        self._samples.reset()
