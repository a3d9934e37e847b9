"""How fast a large checkpoint is saved: one file after the other, and several at a time."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import torch

from bench.measure import ratios, spread, turns, write_table
from safelight.checkpoints.snapshot import Snapshot, environment, prepare
from safelight.checkpoints.writer import commit
from safelight.files import threads

SHARES = {"model": 1, "ema": 1, "optimizer": 2, "profiles": 2}  # of the weights, as a usual checkpoint has them
STATE = {"seconds": 0.0}
TENSORS = 100  # of the weights


def snapshot(gigabytes: float) -> Snapshot:
    numbers = int(gigabytes * 1e9 / 4 / sum(SHARES.values()) / TENSORS)
    tensors = {
        stem: {f"{place:03d}": torch.randn(numbers) for place in range(share * TENSORS)}
        for stem, share in SHARES.items()
    }
    return Snapshot(1, tensors, STATE, environment())


def save(kept: Snapshot, folder: Path, at_once: int) -> float:
    threads.MAX_THREADS = at_once
    begun = time.perf_counter()
    commit(folder, prepare(kept))
    seconds = time.perf_counter() - begun
    shutil.rmtree(folder)
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    options = parser.parse_args()
    kept, ways = snapshot(options.gigabytes), {"one after the other": 1, "several at a time": threads.MAX_THREADS}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        for way in turns([*ways], options.rounds):
            seconds[way].append(save(kept, Path(temporary, "checkpoints"), ways[way]))
    block = bytes(64 << 20)
    begun = time.perf_counter()
    hashlib.sha256(block)
    hashed = len(block) / (time.perf_counter() - begun) / 1e9
    size = sum(tensor.nbytes for group in kept.tensors.values() for tensor in group.values()) / 1e9
    rows = [
        [way, spread([size / each for each in taken]).show(".2f"), spread(taken).show(".1f")]
        for way, taken in seconds.items()
    ]
    faster = ratios(seconds["several at a time"], seconds["one after the other"])
    notes = [
        f"A checkpoint of {size:.2f} GB in {len(SHARES)} files, written, flushed to the disk, hashed, renamed, read "
        "back and hashed again: GB/s and seconds from the first byte until it is there for good.",
        f"Several at a time: {faster.show('.2f')} times as fast. {os.cpu_count()} cores, of which one hashes "
        f"{hashed:.2f} GB/s; load {os.getloadavg()[0]:.1f} at the end. The training thread waits for none of it.",
    ]
    write_table("saving", "Saving a large checkpoint", ["how", "GB/s", "seconds"], rows, notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
