"""Features of a pile of images as they lie there: decoded whole, each resized once, by the extractor itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from safelight.config.tree import Data
from safelight.data.decode import UnreadableImage, decode_whole
from safelight.data.sources import Arrays, Files, open_source
from safelight.errors import DataError
from safelight.evaluate.features import Extractor, extract
from safelight.words import printable

MOST_PIXELS = 1 << 22  # looked at together; a photograph alone may have more


def pile_features(
    source: str,
    extractor: Extractor,
    *,
    most: int | None = None,
    say: Callable[[str], None],
    on_image: Callable[[int], None] | None = None,
) -> np.ndarray:
    """float32 [n, dimension] of a folder, a zip or a known set, sorted by name. Unreadable files are reported."""
    found: list[np.ndarray] = []
    done = 0
    for batch in _batches(_pictures(source, say), most):
        found.append(extract(extractor, batch))
        done += len(batch)
        if on_image is not None:
            on_image(done)
    if not found:
        raise DataError(f"{source} has no image that can be read.")
    return np.concatenate(found)


def _pictures(source: str, say: Callable[[str], None]) -> Iterator[np.ndarray]:
    """uint8 [height, width, 1 or 3], one after the other."""
    data = Data(source=source)
    pile = open_source(data)
    if isinstance(pile, Arrays):
        for pixels, _ in pile.chunks():
            yield from pixels
        return
    names = sorted(entry.name for entry in pile.entries())
    _tell_unseen(pile, say)
    if not names:
        raise DataError(pile.nothing_inside())
    for name in names:
        if (picture := _read(pile, name, data, say)) is not None:
            yield picture


def _tell_unseen(pile: Files, say: Callable[[str], None]) -> None:
    for name, reason in pile.passed_over:
        say(f"Left out {printable(name)}: {reason}")


def _read(pile: Files, name: str, data: Data, say: Callable[[str], None]) -> np.ndarray | None:
    try:
        return decode_whole(pile.read(name, int(data.max_megabytes * 1e6)), data)
    except UnreadableImage as error:
        say(f"Left out {printable(name)}: {error}")
        return None


def _batches(pictures: Iterator[np.ndarray], most: int | None) -> Iterator[np.ndarray]:
    """[n, channels, height, width] of neighbours that have the same shape, as many as fit."""
    held: list[np.ndarray] = []
    for picture in islice(pictures, most):
        full = held and (len(held) + 1) * held[0][..., 0].size > MOST_PIXELS
        if held and (full or held[0].shape != picture.shape or len(held) == 64):
            yield _stacked(held)
            held = []
        held.append(picture)
    if held:
        yield _stacked(held)


def _stacked(pictures: list[np.ndarray]) -> np.ndarray:
    return np.ascontiguousarray(np.stack(pictures).transpose(0, 3, 1, 2))
