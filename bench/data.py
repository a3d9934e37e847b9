"""How fast images come: from the cache against decoding every epoch, the first scan, opening, and waiting in training.

The other loaders are written here in the manner of diffusers' unconditional example and of lucidrains' trainer, with
Pillow and torch alone.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bench.measure import ratios, spread, turns, write_table
from bench.memory import resident
from safelight.config.resolve import resolve
from safelight.config.tree import Data
from safelight.data import cache
from safelight.data.batches import Batches, ImageBatch
from safelight.data.cache_writer import CacheWriter, fingerprint
from safelight.data.images import Images
from safelight.data.listing import Listing, digest
from safelight.data.prepare import open_images
from safelight.data.rows import measure
from safelight.data.scan import available_cores
from safelight.data.sources import SourceFile
from safelight.data.sources.image_folder import ImageFolder
from safelight.training.batch_loader import BatchLoader
from safelight.training.build import Setup, build, infer_data_settings

SIDE, STORED, BATCH, QUALITY = 64, 512, 64, 90
DEFAULT_THREADS = Data().workers or 0  # on a CPU
THREADS = (0, 1, 4)  # that prepare batches ahead
WANTED_RATIO, WANTED_SCAN, WANTED_WAIT = 30.0, 1.0, 0.01
SCAN, PLAIN = "safelight, first scan", "plain Pillow loop"
TINY = 8  # side of the images of the large cache

Row = list[str]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything is measured."""

    rounds: int = 5
    files: int = 1000
    cached_batches: int = 500  # per block
    steps: int = 100  # per block
    cached_images: int = 1_000_000
    openings: int = 20
    listed: int = 10_000


QUICK = Sizes(rounds=2, files=70, cached_batches=3, steps=2, cached_images=2000, openings=2, listed=50)


def seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# Pictures


def make_photographs(folder: Path, count: int) -> None:
    """Soft light, hard edges and the grain of a sensor: as many bytes and as much work as photographs of this size."""
    draw = np.random.default_rng(0)
    grain = draw.normal(0, 7, (2 * STORED, 2 * STORED, 3)).astype(np.float32)
    for number in range(count):
        light = Image.fromarray(draw.integers(30, 226, (6, 6, 3), dtype=np.uint8))
        picture = light.resize((STORED, STORED), Image.Resampling.BICUBIC)
        pen = ImageDraw.Draw(picture)
        for _ in range(6):
            left, top, width, height = draw.integers(0, STORED, 4).tolist()
            colour = tuple(draw.integers(0, 256, 3).tolist())
            (pen.ellipse if width > height else pen.rectangle)((left, top, left + width, top + height), fill=colour)
        y, x = draw.integers(0, STORED, 2).tolist()
        grainy = np.asarray(picture) + grain[y : y + STORED, x : x + STORED]
        Image.fromarray(grainy.clip(0, 255).astype(np.uint8)).save(folder / f"{number:06d}.jpg", quality=QUALITY)


def decode_plainly(path: Path, resampling: Image.Resampling) -> np.ndarray:
    """The short side brought to 64 px and the centre cut out."""
    with Image.open(path) as image:
        colour = image.convert("RGB")
    scale = SIDE / min(colour.size)
    small = colour.resize((round(colour.width * scale), round(colour.height * scale)), resampling)
    left, top = (small.width - SIDE) // 2, (small.height - SIDE) // 2
    return np.array(small.crop((left, top, left + SIDE, top + SIDE)))


# Batches


class Pictures(Dataset[Tensor]):
    """Decodes a file whenever it is asked for."""

    def __init__(self, folder: Path, *, normalise: bool) -> None:
        self.files, self.normalise = sorted(folder.glob("*.jpg")), normalise

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        pixels = decode_plainly(self.files[index], Image.Resampling.BILINEAR)
        scaled = torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float().div_(255)
        return scaled.sub_(0.5).div_(0.5) if self.normalise else scaled


@dataclass(frozen=True, slots=True)
class Loader:
    """Something that hands out batches; a block of it is so many of them."""

    batches: int
    run: Callable[[], None]


def loaders(folder: Path, images: Images, sizes: Sizes) -> dict[str, Loader]:
    cores = available_cores()
    return {threads_called(n): _from_cache(images, n, sizes.cached_batches) for n in THREADS} | {
        "decoding as diffusers' example does, no workers": _decoding(folder, 0, normalise=True),
        "decoding as lucidrains' loader does, no workers": _decoding(folder, 0, normalise=False),
        f"decoding as lucidrains' loader does, {cores} workers": _decoding(folder, cores, normalise=False),
    }


def threads_called(threads: int) -> str:
    return f"safelight, {threads} thread{'s' * (threads != 1)} ahead"


def _decoding(folder: Path, workers: int, *, normalise: bool) -> Loader:
    """A block is an epoch: it begins with nothing prepared, and nothing is left to do when it ends."""
    pictures = Pictures(folder, normalise=normalise)
    loader = DataLoader(
        pictures, BATCH, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=workers > 0
    )

    def run() -> None:
        for batch in loader:
            assert batch.shape == (BATCH, 3, SIDE, SIDE)

    return Loader(len(loader), run)


def _from_cache(images: Images, threads: int, count: int) -> Loader:
    batches, counter = Batches(images, seed=0, batch_size=BATCH), itertools.count()

    def run() -> None:
        steps = list(itertools.islice(counter, count))
        for rows in prefetched(batches, steps, threads):
            assert rows.images.shape == (BATCH, 3, SIDE, SIDE)

    return Loader(count, run)


def prefetched(batches: Batches, steps: Sequence[int], threads: int) -> Iterator[ImageBatch]:
    """As many batches ahead as there are threads, like `training.batch_loader`."""
    if not threads:
        yield from (batches.rows(step, 0, BATCH) for step in steps)
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead: list[Future[ImageBatch]] = []
        for step in steps:
            ahead.append(pool.submit(batches.rows, step, 0, BATCH))
            if len(ahead) > threads:
                yield ahead.pop(0).result()
        yield from (future.result() for future in ahead)


def measure_batches(contenders: Mapping[str, Loader], rounds: int) -> dict[str, list[float]]:
    """Seconds per batch of every block. The first block of everybody is for warming up."""
    for loader in contenders.values():
        loader.run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for name in turns([*contenders], rounds):
        seconds[name].append(seconds_of(contenders[name].run) / contenders[name].batches)
    return seconds


def batch_rows(seconds: Mapping[str, list[float]]) -> tuple[list[Row], float]:
    """The table, and how often the best of the others fits into the default of safelight."""
    host = threads_called(DEFAULT_THREADS)
    factors = {name: ratios(seconds[host], each) for name, each in seconds.items()}
    rows = [
        [
            f"batches of {BATCH}, {SIDE} px",
            name,
            f"{spread([1 / second for second in each]).show('.1f')} batches/s",
            "" if name == host else factors[name].show(".3g"),
        ]
        for name, each in seconds.items()
    ]
    return rows, min(factor.median for name, factor in factors.items() if not name.startswith("safelight"))


# First scan


def measure_scans(folder: Path, scratch: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of each; every scan goes into a cache folder of its own. The first of both are for warming up."""
    fresh = itertools.count()

    def scan() -> None:
        open_images(Data(source=str(folder), image_size=SIDE, cache=str(scratch / f"scan-{next(fresh)}")))

    contenders: dict[str, Callable[[], object]] = {SCAN: scan, PLAIN: lambda: plain_loop(folder)}
    for run in contenders.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for name in turns([*contenders], rounds):
        seconds[name].append(seconds_of(contenders[name]))
    return seconds


def plain_loop(folder: Path) -> np.ndarray:
    """What one writes by hand: a pool of one process per core, and all pixels in one array."""
    files = sorted(folder.glob("*.jpg"))
    with multiprocessing.get_context("fork").Pool(available_cores()) as pool:
        return np.stack(list(pool.imap(_shrunk, files, chunksize=16)))


def _shrunk(path: Path) -> np.ndarray:
    return decode_plainly(path, Image.Resampling.BICUBIC)


def scan_rows(seconds: Mapping[str, list[float]], folder: Path) -> tuple[list[Row], float]:
    sizes = [path.stat().st_size for path in folder.glob("*.jpg")]
    factor = ratios(seconds[SCAN], seconds[PLAIN])
    what = f"scan of {len(sizes):,} JPEGs of {STORED} px, {sum(sizes) / len(sizes) / 1000:.0f} kB each"
    rows = [
        [
            what,
            name,
            f"{spread([len(sizes) / second for second in each]).show('.0f')} files/s",
            factor.show(".2f") if name == PLAIN else "",
        ]
        for name, each in seconds.items()
    ]
    return rows, factor.median


# Waiting for data in training


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some steps: seconds spent waiting for their batches, and seconds in all."""

    waited: float
    seconds: float


def measure_waiting(parts: Setup, steps: int, rounds: int) -> dict[int, list[Stretch]]:
    """Of the demo, by the number of threads that prepare batches ahead; the first stretch of each is for warming up."""
    found: dict[int, list[Stretch]] = {threads: [] for threads in THREADS}
    first = itertools.count(step=steps)
    for number, threads in enumerate([*THREADS, *map(int, turns([*map(str, THREADS)], rounds))]):
        config = replace(parts.config, data=replace(parts.config.data, workers=threads))
        feed = BatchLoader(config, parts.batches)
        stretch = _train(parts, feed, next(first), steps)
        feed.close()
        if number >= len(THREADS):
            found[threads].append(stretch)
    return found


def _train(parts: Setup, feed: BatchLoader, first: int, steps: int) -> Stretch:
    """As `Trainer` does: the first batch, for which nothing could be prepared ahead, is taken before the clock runs."""
    waited, inputs = 0.0, feed.load(first)
    began = time.perf_counter()
    for step in range(first, first + steps):
        parts.stepper.step([micro.moved(parts.runtime.to_device) for micro in inputs], step % parts.config.train.steps)
        asked = time.perf_counter()
        inputs = feed.load(step + 1)
        waited += time.perf_counter() - asked
    return Stretch(waited, time.perf_counter() - began)


def demo_parts() -> Setup:
    config = resolve(preset="digits")
    images = open_images(config.data)
    return build(infer_data_settings(config, images), images, lambda text: None)


def waiting_rows(found: Mapping[int, list[Stretch]], steps: int) -> tuple[list[Row], float]:
    shares = {
        threads: spread([each.waited / each.seconds for each in stretches]) for threads, stretches in found.items()
    }
    rows = [
        [
            "waiting for data in the demo (preset digits)",
            threads_called(threads),
            f"{shares[threads].show('.2%')} of a step of "
            f"{spread([each.seconds / steps * 1000 for each in stretches]).show('.1f')} ms",
            "",
        ]
        for threads, stretches in found.items()
    ]
    return rows, shares[DEFAULT_THREADS].median


# Opening


def make_cache(folder: Path, count: int) -> None:
    """Grey noise with labels and names; a few thousand images again and again, which opening does not mind."""
    pixels = np.random.default_rng(0).integers(0, 256, (min(count, 4096), TINY, TINY, 1), dtype=np.uint8)
    described, names = measure(pixels), tuple(map(str, range(10)))
    with cache.building(folder) as building:
        writer, listing = CacheWriter(building, side=TINY, channels=1), Listing(building / cache.NAMES)
        for start in range(0, count, len(pixels)):
            some = min(len(pixels), count - start)
            writer.add(described[:some], pixels[:some], (np.arange(some) % len(names)).tolist())
            for row in range(start, start + some):
                listing.keep(row, SourceFile(f"{row % 10}/{row:08d}.png", 100, row, None))
        listing.commit()
        stored, _, labels = writer.finish(names)
        (building / cache.NEAR).touch()
        manifest = {
            "shape": (count, TINY, 1),
            "class_names": names,
            "names": True,
            "near": 0,
            "fingerprint": fingerprint(stored, labels),
            "facts": {},
        }
        cache.seal(building, manifest)
        writer.close()
        listing.close()


def measure_opening(folder: Path, times: int) -> tuple[list[float], int]:
    """Seconds of each opening, and bytes of memory of its own that a process needs for the first."""
    before = resident("RssAnon")
    images = cache.open_cache(folder)
    grown = resident("RssAnon") - before
    assert images is not None, f"{folder} does not verify"
    return [seconds_of(lambda: cache.open_cache(folder)) for _ in range(times)], grown


def make_listing(folder: Path, count: int) -> None:
    """Empty files, a hundred to a folder: a walk does not open them."""
    for number in range(count):
        place = folder / f"{number // 100:04d}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:06d}.jpg").touch()


def measure_walk(folder: Path, times: int) -> list[float]:
    return [seconds_of(lambda: digest(ImageFolder(folder).entries())) for _ in range(times)]


def opening_rows(scratch: Path, sizes: Sizes) -> list[Row]:
    large, listed = scratch / "large-8px-cache", scratch / "listed"
    make_cache(large, sizes.cached_images)
    make_listing(listed, sizes.listed)
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # a heap without holes that could be filled unseen
        seconds, grown = pool.apply(measure_opening, (large, sizes.openings))
    walks = spread([second * 1e6 / sizes.listed for second in measure_walk(listed, sizes.openings)])
    opened = spread([second * 1000 for second in seconds])
    return [
        [f"opening a cache of {sizes.cached_images:,} images", "safelight", f"{opened.show('.1f')} ms", ""],
        ["memory that opening it takes", "safelight", f"{grown / 1e6:.1f} MB", ""],
        [f"looking for changes in {sizes.listed:,} files", "safelight", f"{walks.show('.1f')} ms per 1,000 files", ""],
    ]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help=f"blocks of each contender ({Sizes.rounds})")
    parser.add_argument("--files", type=int, help=f"JPEGs, at least {BATCH} ({Sizes.files})")
    parser.add_argument("--quick", action="store_true", help="a little of everything, to see whether it works")
    options = parser.parse_args(words)
    chosen = {name: value for name in ("rounds", "files") if (value := getattr(options, name)) is not None}
    sizes = replace(QUICK if options.quick else Sizes(), **chosen)
    if sizes.files < BATCH or sizes.rounds < 1:
        parser.error(f"at least {BATCH} files and one round are needed.")
    with tempfile.TemporaryDirectory() as folder:
        rows, notes, good = compare(Path(folder), sizes)
    columns = ["what", "who", "median (quartiles)", "safelight is faster by a factor of"]
    write_table("data", "How fast images come", columns, rows, notes)
    return 0 if good else 1


def compare(scratch: Path, sizes: Sizes) -> tuple[list[Row], list[str], bool]:
    """The rows of the table, its notes, and whether all is as wanted."""
    photographs = scratch / "photographs"
    photographs.mkdir()
    make_photographs(photographs, sizes.files)
    scans, scanned = scan_rows(measure_scans(photographs, scratch, sizes.rounds), photographs)
    images = open_images(Data(source=str(photographs), image_size=SIDE, cache=str(scratch / "cache")))
    batches, factor = batch_rows(measure_batches(loaders(photographs, images, sizes), sizes.rounds))
    waits, share = waiting_rows(measure_waiting(demo_parts(), sizes.steps, sizes.rounds), sizes.steps)
    wanted = [
        f"Wanted: a factor of at least {WANTED_RATIO:g} over the best loader that decodes. Found: {factor:.3g}.",
        f"Wanted: a factor of at least {WANTED_SCAN:g} over the plain loop. Found: {scanned:.2f}.",
        f"Wanted: less than {WANTED_WAIT:.0%} of a step spent waiting, at the default of {DEFAULT_THREADS} threads. "
        f"Found: {share:.2%}.",
    ]
    good = factor >= WANTED_RATIO and scanned >= WANTED_SCAN and share < WANTED_WAIT
    return batches + scans + waits + opening_rows(scratch, sizes), [*notes_on(sizes), *wanted], good


def notes_on(sizes: Sizes) -> list[str]:
    return [
        f"{sizes.rounds} rounds in turns after one to warm up; factors are taken within each round, against safelight "
        f"with its default of {DEFAULT_THREADS} threads.",
        f"Batches: the same {sizes.files:,} JPEGs of {STORED} px for all, to float32 of {SIDE} px. A block is "
        f"{sizes.cached_batches} batches from the cache, or one epoch of decoding; workers stay alive between epochs. "
        "No mirrors, no crops: everybody does the same. The first epoch, in which safelight compares checksums, is "
        "among the warm-up.",
        "Decoding is done by Pillow in full size, then bilinear; lucidrains leaves the step from [0, 1] to [-1, 1] "
        "to the trainer. Both would use torchvision, whose transforms call the same Pillow functions.",
        "Scan: into a fresh cache folder each time, processes started anew, with checksums, hashes, facts, pairs that "
        "look alike, and everything flushed to the disk. The plain loop starts its processes anew too, keeps its "
        "pixels in memory, and does nothing else. Files are in the page cache for both.",
        f"Waiting: the real feed (images, timesteps, noise, labels) and the real step, {sizes.steps} steps a block. "
        "With 0 threads, preparing is what is waited for.",
        f"Opening: median of {sizes.openings}, with names and labels, {TINY} px. Memory is RssAnon of a fresh process.",
    ]


if __name__ == "__main__":
    sys.exit(main())
