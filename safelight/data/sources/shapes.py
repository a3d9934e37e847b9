"""The set of coloured shapes: 24 known modes, drawn at any size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from safelight.config.tree import Data
from safelight.data.decode import side_of
from safelight.data.sources import Arrays
from safelight.errors import DataError
from safelight.keys import derive_seed

VERSION = 1  # of the pixels
COUNT = 6000
MAX_IMAGES = 100_000_000
CHUNK_BYTES = 1 << 20  # of pixels; drawing them takes about 12 times as much

SHAPES = ("circle", "square", "triangle", "ring")
HUES = {"red": 0, "yellow": 52, "green": 125, "cyan": 183, "blue": 234, "magenta": 305}
MODES = tuple(f"{colour} {shape}" for colour in HUES for shape in SHAPES)

_ROUND, _HOLE = 0.08, 0.52  # of the corners and inside the ring, as a share of the shape's reach
_REACH = np.array([0.80, 0.97, 1.04, 0.86], np.float32)  # per shape: all four look equally large
_TURN = np.array([0, 0.41421356, 0.57735027, 0], np.float32)  # tan of a quarter of the angle of symmetry
_BRIGHTEST = np.float32(1.08)  # times the largest value of a colour it stays below 1: nothing to clip, no hue bent
_VALUE = np.array([0.95, 1, 0.85, 0.92, 0.97, 0.92], np.float32)  # equal values look unequally bright
_RADIUS = (0.26, 0.40)  # of the picture's side
_HALF = 0.5**0.5 - _ROUND  # of the square's side, before its corners are rounded
_WAIST = 3**0.5 / 2 * (1 - 2 * _ROUND)  # half of the triangle's side, likewise


def shapes(data: Data) -> Arrays:
    count, side = _count(data.source), side_of(data)
    return Arrays(f"shapes {VERSION} {side} {count}", count, MODES, partial(_chunks, count, side))


def _count(source: str) -> int:
    word = source.partition(":")[2] if ":" in source else str(COUNT)
    if word.isascii() and word.isdigit() and len(word) < 20 and 1 <= int(word) <= MAX_IMAGES:
        return int(word)
    raise DataError(
        f"data.source is {source!r}; after the colon a whole number of pictures from 1 to {MAX_IMAGES:,} is expected, "
        f"in digits alone, but {word!r} came. Write for example shapes:20000, or shapes for {COUNT:,} pictures."
    )


def _rows(side: int) -> int:
    return max(1, CHUNK_BYTES // (side * side * 3))


def _chunks(count: int, side: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    step = _rows(side)
    for start in range(0, count, step):
        stop = min(start + step, count)
        labels = _labels(start, stop)
        yield _draw(_uniform(start, stop), labels, side), labels


def _words(purpose: int, start: int, stop: int, width: int) -> np.ndarray:
    # Four words per step of the counter. NumPy guarantees these raw words, but not Generator's methods.
    counter = np.random.Philox(counter=start * width // 4, key=derive_seed(0, "shapes", purpose))
    return counter.random_raw((stop - start) * width).reshape(-1, width)


def _labels(start: int, stop: int) -> np.ndarray:
    """Every 24 pictures in a row show every mode once."""
    block = len(MODES)
    first, last = start // block, -(-stop // block)
    modes = np.argsort(_words(0, first, last, block), axis=1, kind="stable").ravel()
    return modes[start - first * block : stop - first * block].astype(np.int64)


def _uniform(start: int, stop: int) -> np.ndarray:
    """float32 [12, n] in [0, 1)."""
    return ((_words(1, start, stop, 12) >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)).T


def _draw(chance: np.ndarray, labels: np.ndarray, side: int) -> np.ndarray:
    # Only + − × ÷ √ on float32, which IEEE 754 rounds alike everywhere: no sin, no matrix product.
    form = labels % len(SHAPES)
    low, high = _RADIUS
    radius = low + (high - low) * chance[0]
    reach = radius * _REACH[form]
    margin = np.float32(0.03) + reach
    left, top = margin + (1 - 2 * margin) * chance[1:3]
    cosine, sine = _rotation(_TURN[form] * (2 * chance[3] - 1))
    colour = _colour(labels // len(SHAPES), *chance[4:7])

    grid = (np.arange(side, dtype=np.float32) + np.float32(0.5)) / side
    across, down = grid[None, None, :] - left[:, None, None], grid[None, :, None] - top[:, None, None]
    distance = _distances(across, down, form, reach, cosine, sine)
    cover = np.clip(np.float32(0.5) - distance * side, 0, 1)

    ground = _ground(colour, chance[7:10], grid)
    near = np.clip(1 - distance / np.float32(0.16), 0, 1)
    ground *= 1 - np.float32(0.30) * near * near  # a soft shadow: also without colour the shape stands out
    light = np.minimum(1 - (across + down) * (np.float32(0.055) / reach)[:, None, None], _BRIGHTEST)

    pixels = np.empty((len(labels), side, side, 3), np.uint8)
    for band in range(3):
        pixels[..., band] = (ground + cover * (light * colour[band][:, None, None] - ground)) * 255 + np.float32(0.5)
    return pixels


def _rotation(tangent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine from the tangent of half the angle."""
    square = tangent * tangent
    return (1 - square) / (1 + square), 2 * tangent / (1 + square)


def _colour(index: np.ndarray, hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    """float32 [3, n], by the usual way from hue, saturation and value."""
    angle = np.array(list(HUES.values()), np.float32)[index] + 12 * hue - 6
    saturation = np.float32(0.74) + np.float32(0.14) * saturation
    value = (np.float32(0.82) + np.float32(0.10) * value) * _VALUE[index]
    sector = (np.array([[5], [3], [1]], np.float32) + angle / 60) % 6
    return value - value * saturation * np.clip(np.minimum(sector, 4 - sector), 0, 1)


def _ground(colour: np.ndarray, chance: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """float32 [n, side, side]: a grey slope whose level keeps away from the grey that the colour would become."""
    low, high, gap = np.float32(0.16), np.float32(0.86), np.float32(0.2)
    luma = np.float32(0.299) * colour[0] + np.float32(0.587) * colour[1] + np.float32(0.114) * colour[2]
    start, stop = np.maximum(luma - gap, low), np.minimum(luma + gap, high)
    level = low + chance[0] * (high - low - (stop - start))
    level = np.where(level > start, level + (stop - start), level)
    cosine, sine = _rotation(np.float32(0.42) * (2 * chance[1] - 1))  # 45 degrees to either side of straight down
    slope = np.float32(0.24) * (chance[2] - np.float32(0.5))
    slope += np.where(slope < 0, np.float32(-0.06), np.float32(0.06))
    centred = grid - np.float32(0.5)
    down, across = (slope * cosine)[:, None, None], (slope * sine)[:, None, None]
    return (level[:, None, None] + down * centred[:, None]) + across * centred


def _distances(
    across: np.ndarray, down: np.ndarray, form: np.ndarray, reach: np.ndarray, cosine: np.ndarray, sine: np.ndarray
) -> np.ndarray:
    """[n, side, side]: how far each point is outside its shape, negative inside; in shares of the picture's side."""
    distance = np.empty((len(form), down.shape[1], across.shape[2]), np.float32)
    for index, name in enumerate(SHAPES):
        (chosen,) = np.nonzero(form == index)
        size, c, s = (values[chosen, None, None] for values in (reach, cosine, sine))
        x, y = across[chosen] / size, down[chosen] / size
        distance[chosen] = _distance(name, c * x + s * y, c * y - s * x) * size
    return distance


def _distance(name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """To a shape of reach 1 around the origin. The triangle's fold is by Inigo Quilez (iquilezles.org, MIT)."""
    if name == "circle":
        return np.sqrt(x * x + y * y) - 1
    if name == "ring":
        return np.abs(np.sqrt(x * x + y * y) - np.float32((1 + _HOLE) / 2)) - np.float32((1 - _HOLE) / 2)
    if name == "square":
        x, y = np.abs(x) - np.float32(_HALF), np.abs(y) - np.float32(_HALF)
        right, below = np.maximum(x, 0), np.maximum(y, 0)
        return np.sqrt(right * right + below * below) + np.minimum(np.maximum(x, y), 0) - np.float32(_ROUND)
    root, half = np.float32(3**0.5), np.float32(_WAIST)
    x, y = np.abs(x) - half, half / root - y  # its tip points up, where y is small
    fold = x + root * y > 0
    x, y = np.where(fold, (x - root * y) / 2, x), np.where(fold, (-root * x - y) / 2, y)
    x = x - np.clip(x, -2 * half, 0)
    return -np.sqrt(x * x + y * y) * np.sign(y) - np.float32(_ROUND)
