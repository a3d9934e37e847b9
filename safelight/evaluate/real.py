"""Features of real images, computed once: cached with the prepared images, keyed by all that they depend on."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load, save

from safelight.data.images import Images
from safelight.evaluate.features import Extractor, extract
from safelight.files import Disk, make_directories, read_tensor_file, write_atomically

CHUNK = 256  # images read at a time
FEATURES = "features"
MAX_KEPT_BYTES = 8 << 30  # bytes of kept features


def choose(ids: np.ndarray, count: int) -> np.ndarray:
    """At most `count` of these rows, evenly spread over them: the same ones every time."""
    if len(ids) <= count:
        return ids
    return ids[np.linspace(0, len(ids) - 1, count).round().astype(np.int64)]


def real_pixels(images: Images, ids: np.ndarray, side: int) -> np.ndarray:
    """uint8 [n, channels, side, side], never varied; the middle of images that are kept larger for random windows."""
    pixels = images.take(ids)
    margin = (pixels.shape[1] - side) // 2
    return np.ascontiguousarray(pixels[:, margin : margin + side, margin : margin + side].transpose(0, 3, 1, 2))


def real_chunks(images: Images, ids: np.ndarray, side: int) -> Iterator[np.ndarray]:
    """The same, a few at a time."""
    for start in range(0, len(ids), CHUNK):
        yield real_pixels(images, ids[start : start + CHUNK], side)


def real_features(images: Images, ids: np.ndarray, extractor: Extractor, *, side: int, cache: Path) -> np.ndarray:
    """float32 [n, dimension] of these rows. A cache that is damaged or cannot be written costs time, nothing else."""
    identity = {
        "data": images.fingerprint,
        "rows": hashlib.sha256(np.ascontiguousarray(ids, np.int64).tobytes()).hexdigest(),
        "count": len(ids),
        "image_side": side,
    }
    return kept_features(
        identity, len(ids), extractor, lambda: extract(extractor, real_chunks(images, ids, side)), cache=cache
    )


def kept_features(
    identity: Mapping[str, str | int],
    count: int | None,
    extractor: Extractor,
    compute: Callable[[], np.ndarray],
    *,
    cache: Path,
) -> np.ndarray:
    """Those of the images with this identity: kept from before, or computed. `count`: how many, where it is known."""
    identity = {**identity, **extractor.identity()}
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    path = cache / "features" / f"{key[:32]}.safetensors"
    disk = Disk(cache)
    if (kept := _read(path, count, extractor.dimension, disk)) is not None:
        return kept
    found = compute()
    with contextlib.suppress(OSError):
        make_directories(cache)
        make_directories(path.parent, disk)
        words = {name: str(value) for name, value in identity.items()}
        write_atomically(path, save({FEATURES: found}, words | {"check": _check(found)}), disk)
    return found


def _check(features: np.ndarray) -> str:
    return hashlib.sha256(features.tobytes()).hexdigest()


def _read(path: Path, count: int | None, dimension: int, disk: Disk) -> np.ndarray | None:
    """What was kept, if every byte of it is as it was written."""
    try:
        raw, header = read_tensor_file(path, MAX_KEPT_BYTES, disk)
        found = load(raw)[FEATURES]
    except Exception:  # safetensors has errors of its own for each way a file can be broken
        return None
    shape = (len(found) if count is None else count, dimension)
    intact = found.shape == shape and found.dtype == np.float32 and header.get("check") == _check(found)
    return found if intact else None
