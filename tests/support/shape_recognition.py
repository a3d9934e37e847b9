"""Which of the 24 modes of the coloured shapes a picture shows: what tests count modes with."""

from __future__ import annotations

import numpy as np

from safelight.data.sources.shapes import (
    _HALF,
    _HOLE,
    _RADIUS,
    _REACH,
    _ROUND,
    _WAIST,
    HUES,
    SHAPES,
    _colour,
    _distances,
    _rows,
)

_BARE = np.array([0, 4 * _HALF**2, 3**0.5 * _WAIST**2, 0])
_EDGE = np.array([0, 8 * _HALF, 6 * _WAIST, 0])
_CURVE = np.array([1, _ROUND, _ROUND, 1 - _HOLE])
_AREA = _BARE + _EDGE * _CURVE + np.pi * np.array([1, _ROUND**2, _ROUND**2, 1 - _HOLE**2])
_PERIMETER = _EDGE + 2 * np.pi * np.array([1, _ROUND, _ROUND, 1 + _HOLE])
_THIRD = np.exp(2j * np.pi / 3)
_STRONG = 60  # chroma that noise of sigma 8 on grey never reaches
_VIVID = 95  # least chroma of a shape; the source has 125 and more
_PURE = 0.93  # least share of the strongly coloured that has one hue
_NEAR_HUE = np.cos(np.radians(18))  # the source strays by 6 degrees, and its hues are 50 apart


def recognise(pixels: np.ndarray) -> np.ndarray:
    """The mode of each picture of uint8 [n, side, side, 3], or -1 where it is none of the 24.

    Against grey the colour of a pixel says how much of it the shape covers. Centre and area of that cover, and the
    angle of its third or fourth moment, leave one candidate per shape; the one that differs least wins, if by little.
    """
    assert pixels.dtype == np.uint8, f"{pixels.dtype} where uint8 is expected"
    assert pixels.ndim == 4, f"{pixels.shape} where [n, side, side, 3] is expected"
    assert pixels.shape[1:] == (pixels.shape[1], pixels.shape[1], 3), f"{pixels.shape} is not [n, side, side, 3]"
    step = _rows(pixels.shape[1])
    found = [_recognise(pixels[start : start + step]) for start in range(0, len(pixels), step)]
    return np.concatenate([np.zeros(0, np.int64), *found])


def _recognise(pixels: np.ndarray) -> np.ndarray:
    colour, cover = cover_of(pixels)
    form = _form(cover)
    return np.where((colour < 0) | (form < 0), -1, colour * len(SHAPES) + form)


def _plane(red: np.ndarray, green: np.ndarray, blue: np.ndarray) -> np.ndarray:
    """Colour without grey: a complex number whose angle is about the hue. Linear, so noise and blur do not bias it."""
    real = red - (green + blue) * np.float32(0.5)
    return real + 1j * (np.float32(_THIRD.imag) * (green - blue))


def cover_of(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[n] index of the one colour, or -1; and [n, side, side] how much of each pixel has it, from 0 to 1."""
    count, colours = len(pixels), len(HUES)
    flat = pixels.reshape(count, -1, 3).astype(np.float32)
    plane = _plane(flat[..., 0], flat[..., 1], flat[..., 2])
    middle = np.full(colours, np.float32(0.5))
    hues = _plane(*_colour(np.arange(colours), middle, middle, middle))
    hues /= np.abs(hues)
    strong = np.where(np.abs(plane) > _STRONG, plane, 0)
    nearest = np.argmax([(strong * hue.conj()).real for hue in hues], axis=0)
    cells = (nearest + colours * np.arange(count)[:, None]).ravel()
    votes = np.bincount(cells, np.abs(strong).ravel(), colours * count).reshape(count, colours)
    winner = votes.argmax(axis=1)
    sums = np.where(nearest == winner[:, None], strong, 0).sum(axis=1)
    direction = sums / np.maximum(np.abs(sums), 1)
    along = (plane * direction[:, None].conj()).real
    weight = np.maximum(along - _STRONG, 0)
    typical = (along * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1)
    inner = along >= 0.9 * typical[:, None]  # the edge's pixels are grey in part
    chroma = (along * inner).sum(axis=1) / np.maximum(inner.sum(axis=1), 1)
    clear = (votes.max(axis=1) >= _PURE * votes.sum(axis=1)) & (chroma >= _VIVID)
    clear &= (direction * hues[winner].conj()).real >= _NEAR_HUE
    cover = np.clip(along / np.maximum(chroma, _VIVID)[:, None], 0, 1)
    cover[cover < 0.25] = 0  # noise on the ground
    return np.where(clear, winner, -1), cover.reshape(pixels.shape[:3]).astype(np.float32)


def _form(cover: np.ndarray) -> np.ndarray:
    """[n] index of the shape that the cover is, or -1."""
    count, side = len(cover), cover.shape[1]
    grid = (np.arange(side, dtype=np.float32) + np.float32(0.5)) / side
    area = np.maximum(cover.sum(axis=(1, 2)), 1)
    left, top = cover.sum(axis=1) @ grid / area, cover.sum(axis=2) @ grid / area
    across, down = grid[None, None, :] - left[:, None, None], grid[None, :, None] - top[:, None, None]
    point = across + 1j * down
    third, fourth = (np.einsum("nyx,nyx->n", cover, power) for power in (point * point * point, (point * point) ** 2))
    still = np.zeros(count, np.float32)
    # Tips lie where the moment's angle says: the triangle's first one is up, the square's is diagonal.
    turns = (still, (np.angle(fourth) + np.pi) / 4, (np.angle(third) - np.pi / 2) / 3, still)
    error = np.empty((len(SHAPES), count))
    for index, turn in enumerate(turns):
        reach = np.sqrt(area / np.float32(_AREA[index])) / side
        form = np.full(count, index)
        distance = _distances(across, down, form, reach, np.cos(turn), np.sin(turn))
        template = np.clip(np.float32(0.5) - distance * side, 0, 1)
        wrong = np.abs(cover - template).sum(axis=(1, 2)) / area
        # A tenth of the area may be wrong, and the whole edge by a third of a pixel; sizes as in the source.
        error[index] = wrong / (0.1 + 0.35 * _PERIMETER[index] / (_AREA[index] * reach * side))
        radius = reach / _REACH[index]
        error[index, (radius < 0.8 * _RADIUS[0]) | (radius > 1.2 * _RADIUS[1])] = np.inf
    return np.where(error.min(axis=0) <= 1, error.argmin(axis=0), -1)
