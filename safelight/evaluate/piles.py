"""Features of a pile of images as they lie there: decoded whole, each resized once, by the extractor itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from safelight.config.tree import Data
from safelight.data.decode import UnreadableImage, decode_whole
from safelight.data.sources import Arrays, open_source
from safelight.errors import DataError
from safelight.evaluate.features import Extractor, Progress, extract
from safelight.evaluate.networks.weights import Say
from safelight.words import printable

MOST_PIXELS = 1 << 22  # of a batch; a photograph alone may have more


def pile_features(
    source: str, extractor: Extractor, *, say: Say, most: int | None = None, on_image: Progress | None = None
) -> np.ndarray:
    """float32 [n, dimension] of a folder, a zip or a known set, sorted by name. Unreadable files are reported."""
    pictures = islice(_pictures(source, say), most)
    chunks = (picture.transpose(2, 0, 1)[None].copy() for picture in pictures)
    return extract(extractor, chunks, most_pixels=MOST_PIXELS, on_batch=on_image)


def _pictures(source: str, say: Say) -> Iterator[np.ndarray]:
    """uint8 [height, width, 1 or 3], one after the other."""
    data = Data(source=source)
    pile = open_source(data)
    if isinstance(pile, Arrays):
        for pixels, _ in pile.chunks():
            yield from pixels
        return
    names = sorted(entry.name for entry in pile.entries())
    for name, reason in pile.passed_over:
        say(f"Left out {printable(name)}: {reason}")
    if not names:
        raise DataError(pile.nothing_inside())
    unreadable = 0
    for name in names:
        try:
            picture = decode_whole(pile.read(name, int(data.max_megabytes * 1e6)), data)
        except UnreadableImage as error:
            say(f"Left out {printable(name)}: {error}")
            unreadable += 1
        else:
            yield picture
    if unreadable == len(names):
        raise DataError(f"{source} has no image that can be read.")
