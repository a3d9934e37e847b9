"""From a source to its images: opened from the cache, or scanned into one."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import PIL
from PIL import Image

from safelight.config.tree import Data
from safelight.data import cache, decode
from safelight.data.cache import Say
from safelight.data.cache_writer import CacheWriter, fingerprint
from safelight.data.decode import Retry, as_pixels, side_of, square
from safelight.data.facts import find_facts
from safelight.data.images import Images
from safelight.data.listing import Listing, Names, digest
from safelight.data.near_duplicates import find_alike
from safelight.data.rows import measure
from safelight.data.scan import Scanned, scan
from safelight.data.sources import Arrays, Files, open_source
from safelight.data.sources.image_folder import LOOSE
from safelight.data.summary import too_bad
from safelight.errors import DataError
from safelight.files import Disk, write_atomically
from safelight.words import printable

# What makes pixels of a source. Everything else may change and leaves the cache as it is.
TRANSFORM = ("image_size", "channels", "fit", "filter", "background", "random_crop", "max_pixels", "max_megabytes")
RETRY_LIMITS = ("max_seconds", "max_memory")  # a file left out for one of these is tried again under larger ones
SHOWN = 5  # rejected files named in an error message
GROUP = 64  # images written at a time

Progress = Callable[[int, int], None]


def open_images(data: Data, progress: Progress = lambda done, total: None, say: Say = lambda text: None) -> Images:
    """The images of `data.source`, ready to train on; DataError if too many files of it cannot be used."""
    images = prepare(data, progress, say)
    if data.classes is not None and len(images.class_names) > data.classes:
        raise DataError(
            f"data.classes is {data.classes}, but {data.source} has {len(images.class_names)} classes. "
            f"Set it to {len(images.class_names)} or leave it unset."
        )
    if too_bad(len(images.rejected), len(images), data):
        raise DataError(too_many_bad(data, images.rejected, len(images)))
    return images


def prepare(data: Data, progress: Progress = lambda done, total: None, say: Say = lambda text: None) -> Images:
    """The images of `data.source` at their final size; decoded only where no cache has them."""
    source = open_source(data)
    stamp = source.stamp if isinstance(source, Arrays) else digest(source.entries())
    folder = cache.cache_root(data, say) / cache.folder_name(data, _slot(data), _sha256(stamp))
    images = cache.open_cache(folder)
    if images is not None and not _readable_now(images, folder, data):
        return images
    stale = images is not None
    with cache.locked(folder, say):
        if stale or (images := cache.open_cache(folder)) is None:
            images = _build(source, data, folder, progress)
    cache.forget_old(folder)
    return images


def too_many_bad(data: Data, rejected: Sequence[tuple[str, str]], kept: int) -> str:
    bad, total = len(rejected), len(rejected) + kept
    first = "".join(f"\n  {name}: {reason}" for name, reason in rejected[:SHOWN])
    more = f"\n  and {bad - SHOWN:,} more: `safelight data {data.source}` lists them all" if bad > SHOWN else ""
    return (
        f"{bad:,} of {total:,} files in {data.source} cannot be used ({bad / total:.1%}); "
        f"data.max_bad allows {data.max_bad:.1%}.{first}{more}\n"
        "Repair or remove them" + (", or raise data.max_bad." if kept else ": none is left to train on.")
    )


def _slot(data: Data) -> str:
    """One for each source and way of preparing it, whatever state the source is in."""
    path = os.path.expanduser(data.source)
    place = os.path.realpath(path) if os.path.exists(path) else data.source
    settings = {name: getattr(data, name) for name in TRANSFORM}
    return _sha256(json.dumps([cache.VERSION, decode.VERSION, PIL.__version__, os.fsencode(place).hex(), settings]))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _readable_now(images: Images, folder: Path, data: Data) -> bool:
    """Whether a file that could not be had, or not within the earlier limits, can be read now."""
    if not isinstance(images.names, Names) or not images.rejected:
        return False
    then = (cache.read_manifest(folder) or {}).get("limits", {})
    retried: set[Retry] = {"any time"}
    if any(getattr(data, name) > then.get(name, 0) for name in RETRY_LIMITS):
        retried.add("larger limits")
    names = [name for name, _, retry in images.names.rejected() if retry in retried]
    return any(found.row is not None for found in scan(names, data))


def _build(source: Files | Arrays, data: Data, folder: Path, report: Progress) -> Images:
    with (
        cache.building(folder) as building,
        closing(CacheWriter(building, side=side_of(data), channels=data.channels)) as writer,
    ):
        if isinstance(source, Arrays):
            class_names = _write_arrays(source, writer, data, report)
        else:
            class_names = _write_files(source, writer, data, _earlier(folder), report)
        pixels, rows, labels = writer.finish(class_names)
        shape = writer.count, writer.side, writer.channels
        near = find_alike(rows, pixels)
        write_atomically(building / cache.NEAR, near.tobytes(), Disk(building))
        facts = find_facts(rows, shape, labels, class_names, near, data)
        cache.seal(
            building,
            {
                "source": data.source,
                "settings": {name: getattr(data, name) for name in TRANSFORM},
                "limits": {name: getattr(data, name) for name in RETRY_LIMITS},
                "created": time.time(),
                "shape": shape,
                "class_names": list(class_names),
                "names": not isinstance(source, Arrays),
                "near": len(near),
                "fingerprint": fingerprint(pixels, labels, rows),
                "facts": facts,
            },
        )
    images = cache.open_cache(folder)
    if images is None:
        raise DataError(f"{folder} was written and cannot be read back. Choose another place with --set data.cache=DIR")
    return images


def _write_arrays(source: Arrays, writer: CacheWriter, data: Data, report: Progress) -> tuple[str, ...]:
    for pixels, labels in source.chunks():
        for start in range(0, len(pixels), GROUP):
            group = _squares(pixels[start : start + GROUP], data)
            writer.add(measure(group), group, None if labels is None else labels[start : start + GROUP])
            report(writer.count, source.count)
    return source.class_names


def _squares(pixels: np.ndarray, data: Data) -> np.ndarray:
    side, bands = side_of(data), data.channels or pixels.shape[3]
    if pixels.shape[1:] == (side, side, bands):
        return pixels
    squares = np.empty((len(pixels), side, side, bands), np.uint8)
    for index, one in enumerate(pixels):
        image = Image.fromarray(one if one.shape[2] == 3 else one[:, :, 0])
        fitted = as_pixels(square(image.convert("L") if bands == 1 else image, data))
        if fitted.shape[2] > bands:  # coloured bars around grey pictures
            bands, squares = 3, np.repeat(squares, 3, axis=3)
        squares[index] = fitted
    return squares


def _earlier(folder: Path) -> tuple[Path, Images] | None:
    """The newest other state of the same source: what has not changed since is copied from it."""
    for path in [folder, *cache.earlier_caches(folder)]:
        if (images := cache.open_cache(path)) is not None:
            return path, images
    return None


def _write_files(
    source: Files, writer: CacheWriter, data: Data, earlier: tuple[Path, Images] | None, report: Progress
) -> tuple[str, ...]:
    """What an earlier cache has is taken from there, the rest is decoded."""
    with (
        closing(Listing(writer.folder / cache.NAMES, earlier and earlier[0] / cache.NAMES)) as listing,
        closing(scan(listing.new_names(), data)) as scanned,
    ):
        total = listing.fill(source.entries())
        if not total:
            raise DataError(source.nothing_inside())
        cache.refuse_small_disk(writer.folder, total * side_of(data) ** 2 * (data.channels or 3))
        rejected = list(source.passed_over)
        for name, reason in rejected:
            listing.reject(name, reason, "any time")
        numbers = {name: number for number, name in enumerate(listing.labels())}
        labelled = [*numbers] not in ([], [LOOSE])
        for done, (entry, row) in enumerate(listing.entries(), 1):
            found = next(scanned) if row is None or earlier is None else Scanned(*cache.stored_image(earlier[1], row))
            if found.row is None or found.pixels is None:
                listing.reject(entry.name, found.reason, found.retry)
                rejected.append((printable(entry.name), found.reason))
            else:
                label = [numbers.setdefault(entry.label or LOOSE, len(numbers))] if labelled else None
                writer.add(found.row[None], found.pixels[None], label)
                listing.keep(writer.count - 1, entry)
            report(done, total)
        listing.commit()
    if not writer.count:
        raise DataError(too_many_bad(data, rejected, 0))
    return tuple(map(printable, writer.renumber([*numbers]))) if labelled else ()
