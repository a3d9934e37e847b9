"""Finds images that look alike without being equal: candidates by their difference hash, confirmed by their pixels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from safelight.data.facts import BLANK_DEVIATION, deviations, parts

BITS = 10  # of 64 in which two hashes may differ
NEIGHBOURS = 3  # compared with each image in every sorted order
TURNS = (0, 9, 18, 27, 36, 45, 54)  # sorted by other bits each time: two near hashes agree in the leading ones of one
CORRELATION = 0.995  # of the pixels of two pictures that are one; docs/data.md has what this finds and what not
SIDE = 32  # pixels at which they are compared: at finer sizes, compression noise would make them differ
MAX_PAIRS = 100_000  # pairs that are kept
_CHUNK = 1024


def find_alike(rows: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """int32 [m, 2], each row smaller first. Time n log n, memory a few numbers per image."""
    textured = np.flatnonzero(deviations(rows, pixels.shape[1]) >= BLANK_DEVIATION)  # blank ones all look alike
    pairs = set[tuple[int, int]]()
    for candidates in _candidates(np.asarray(rows["dhash"])[textured]):
        new = [pair for pair in map(tuple, np.sort(textured[candidates], axis=1).tolist()) if pair not in pairs]
        pairs.update(_confirmed(np.array(new, np.int64).reshape(-1, 2), rows, pixels))
        if len(pairs) >= MAX_PAIRS:
            break
    return np.array(sorted(pairs)[:MAX_PAIRS], "<i4").reshape(-1, 2)


def _candidates(hashes: np.ndarray) -> Iterator[np.ndarray]:
    for turn in TURNS:
        turned = hashes << np.uint64(turn) | hashes >> np.uint64(64 - turn) if turn else hashes
        order = np.argsort(turned, kind="stable")
        for distance in range(1, NEIGHBOURS + 1):
            for part in parts(len(order) - distance):
                pairs = np.stack([order[:-distance][part], order[distance:][part]], 1)
                yield pairs[_bits(hashes[pairs[:, 0]] ^ hashes[pairs[:, 1]]) <= BITS]


def _bits(words: np.ndarray) -> np.ndarray:
    return np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1).sum(1)


def _confirmed(pairs: np.ndarray, rows: np.ndarray, pixels: np.ndarray) -> Iterator[tuple[int, int]]:
    content = np.asarray(rows["content"])
    for start in range(0, len(pairs), _CHUNK):
        chunk = pairs[start : start + _CHUNK]
        equal = (content[chunk[:, 0]] == content[chunk[:, 1]]).all(1)
        first, second = (_centred(pixels[chunk[:, side]]) for side in (0, 1))
        alike = (first * second).sum(1) >= CORRELATION
        yield from map(tuple, chunk[alike & ~equal].tolist())


def _centred(pixels: np.ndarray) -> np.ndarray:
    """[n, values] of length one each, so that a product is a correlation."""
    count, side, _, channels = pixels.shape
    box = max(1, side // SIDE)
    cells = side // box
    boxes = pixels[:, : cells * box, : cells * box].reshape(count, cells, box, cells, box, channels)
    flat = boxes.mean((2, 4), dtype=np.float32).reshape(count, -1)
    flat -= flat.mean(1, keepdims=True)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6)
