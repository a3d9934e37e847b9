"""Several files at a time: hashing, writing and reading release Python's lock, and one core hashes under 1 GB/s."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from safelight.files.disk import Disk

MAX_THREADS = 6
MIN_BYTES = 64 << 20  # below, threads would save milliseconds, and take a core from the training

Item = TypeVar("Item")
Found = TypeVar("Found")


def in_threads(
    act: Callable[[Item], Found], items: Sequence[Item], bytes_of: Callable[[Item], int], disk: Disk
) -> list[Found]:
    """What `act` finds of each item, the largest first; none is at work any more where one fails. One after the other
    on a disk of a test, which counts calls."""
    threads = min(MAX_THREADS, len(items), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    if threads < 2 or type(disk) is not Disk or sum(map(bytes_of, items)) < MIN_BYTES:
        return [act(item) for item in items]
    with ThreadPoolExecutor(threads, thread_name_prefix="safelight-files") as pool:
        order = sorted(range(len(items)), key=lambda place: -bytes_of(items[place]))
        under_way = {place: pool.submit(act, items[place]) for place in order}
    return [under_way[place].result() for place in range(len(items))]
