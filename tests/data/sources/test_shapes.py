"""The coloured shapes: 24 modes, each equally often, and a ruler that knows them from what is none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from shape_recognition import cover_of, recognise

from safelight.config.tree import Data
from safelight.data.sources import shapes as module
from safelight.data.sources.shapes import CHUNK_BYTES, HUES, MODES, SHAPES, shapes
from safelight.errors import DataError


def load(count: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    pieces = list(shapes(Data(source=f"shapes:{count}", image_size=side)).chunks())
    labels = [piece for _, piece in pieces if piece is not None]
    return np.concatenate([piece for piece, _ in pieces]), np.concatenate(labels)


def noisy(pixels: np.ndarray, sigma: float) -> np.ndarray:
    noise = np.random.default_rng(1).normal(0, sigma, pixels.shape)
    return np.clip(np.rint(pixels + noise), 0, 255).astype(np.uint8)


def blurred(pixels: np.ndarray) -> np.ndarray:
    """By (1, 2, 1) / 4 each way: about a sigma of 0.7 pixels."""
    wide = np.pad(pixels.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    tall = (wide[:, :-2] + 2 * wide[:, 1:-1] + wide[:, 2:]) / 4
    return np.rint((tall[:, :, :-2] + 2 * tall[:, :, 1:-1] + tall[:, :, 2:]) / 4).astype(np.uint8)


def test_the_modes_are_named_and_counted() -> None:
    source = shapes(Data(source="shapes"))
    assert source.count == 6000
    assert source.class_names == MODES
    assert len(set(MODES)) == 24
    assert MODES[0] == "red circle"


@pytest.mark.parametrize(
    ("source", "count"), [("shapes", 6000), ("shapes:1", 1), ("shapes:24", 24), ("shapes:20000", 20000)]
)
def test_healthy_counts(source: str, count: int) -> None:
    assert shapes(Data(source=source)).count == count


BAD = ["abc", "0", "-5", "", " 7", "1.5", "1e3", "20_000", "+3", "²", "٣", "100000001", "9" * 5000]


@pytest.mark.parametrize("word", BAD)
def test_bad_counts_are_refused_in_words(word: str) -> None:
    with pytest.raises(DataError) as caught:
        shapes(Data(source=f"shapes:{word}"))
    message = str(caught.value)
    assert repr(word) in message, "what came"
    assert "from 1 to 100,000,000" in message, "what is expected"
    assert "shapes:20000" in message, "an example"


STAMPS = [
    (Data(source="shapes:48", image_size=16), True),
    (Data(source="shapes:48", image_size=16, flip=True), True),
    (Data(source="shapes:49", image_size=16), False),
    (Data(source="shapes:48", image_size=17), False),
    (Data(source="shapes:48", image_size=16, random_crop=0.25), False),
]


@pytest.mark.parametrize(("data", "same"), STAMPS)
def test_the_stamp_changes_when_the_pictures_do(data: Data, same: bool) -> None:
    assert (shapes(data).stamp == shapes(Data(source="shapes:48", image_size=16)).stamp) == same


def test_a_margin_for_random_windows_is_drawn_too() -> None:
    pixels, _ = next(shapes(Data(source="shapes:3", image_size=16, random_crop=0.25)).chunks())
    assert pixels.shape == (3, 20, 20, 3)


def test_grey_is_asked_for_but_colour_is_given_and_stands_out_when_grey() -> None:
    pixels, _ = next(shapes(Data(source="shapes:240", image_size=32, channels=1)).chunks())
    assert pixels.shape[1:] == (32, 32, 3)
    grey = pixels @ np.array([0.299, 0.587, 0.114])
    _, cover = cover_of(pixels)
    inside, around = (np.array([grey[i][part[i]].mean() for i in range(240)]) for part in (cover > 0.9, cover == 0))
    assert np.abs(inside - around).min() > 20


def test_the_pictures_never_change() -> None:
    """Fails when a pixel differs from what version 1 drew: then VERSION must rise."""
    pixels, labels = load(240, 16)
    assert module.VERSION == 1
    assert hashlib.blake2b(pixels.tobytes() + labels.tobytes(), digest_size=8).hexdigest() == "041043d63c6d7f41"


@pytest.mark.parametrize("side", [8, 32, 100])
def test_a_shorter_set_is_a_prefix_of_a_longer_one(side: int) -> None:
    long, labels = load(500, side)
    for count in (1, 23, 25, 100, 499):
        head, names = load(count, side)
        assert len(head) == count
        assert np.array_equal(head, long[:count])
        assert np.array_equal(names, labels[:count])
    assert len(np.unique(long.reshape(500, -1), axis=0)) == 500, "no picture twice"


def test_the_cut_into_chunks_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, names = load(100, 16)
    for rows in (1, 7, 24, 99):
        monkeypatch.setattr(module, "CHUNK_BYTES", rows * 16 * 16 * 3)
        pixels, labels = load(100, 16)
        assert np.array_equal(pixels, whole)
        assert np.array_equal(labels, names)


@pytest.mark.parametrize("count", [24, 2400, 1000, 25, 23])
def test_every_mode_is_equally_often(count: int) -> None:
    _, labels = load(count, 8)
    times = np.bincount(labels, minlength=24)
    assert times.min() == count // 24
    assert times.max() == -(-count // 24)
    assert labels.dtype == np.int64
    if count == 2400:
        assert len({block.tobytes() for block in labels.reshape(-1, 24)}) == 100, "each block has its own order"


@pytest.mark.parametrize(("side", "count"), [(8, 30000), (32, 1000), (256, 20), (640, 2)])
def test_chunks_are_small_whatever_the_count(side: int, count: int) -> None:
    seen = 0
    for pixels, labels in shapes(Data(source=f"shapes:{count}", image_size=side)).chunks():
        assert pixels.dtype == np.uint8
        assert labels is not None
        assert len(pixels) == len(labels) > 0
        assert pixels.nbytes <= max(CHUNK_BYTES, side * side * 3)
        seen += len(pixels)
    assert seen == count


def test_the_first_chunk_costs_the_same_in_a_huge_set() -> None:
    few, many = (next(shapes(Data(source=f"shapes:{count}")).chunks())[0] for count in (6000, 100_000_000))
    assert np.array_equal(few, many)


@pytest.mark.parametrize(("side", "count"), [(16, 6000), (24, 2400), (32, 2400), (64, 480), (129, 96)])
def test_the_ruler_agrees_with_the_labels(side: int, count: int) -> None:
    pixels, labels = load(count, side)
    for name, seen in (("clean", pixels), ("noisy", noisy(pixels, 8)), ("blurred", blurred(pixels))):
        least = 0.999 if name == "clean" or side >= 24 else 0.99
        assert (recognise(seen) == labels).mean() >= least, name


def test_the_ruler_at_eight_pixels() -> None:
    pixels, labels = load(6000, 8)
    assert (recognise(pixels) == labels).mean() >= 0.99


@pytest.mark.parametrize("side", [8, 16, 32])
def test_colours_are_never_confused(side: int) -> None:
    pixels, labels = load(2400, side)
    for seen in (pixels, noisy(pixels, 8), blurred(pixels)):
        found = recognise(seen)
        known = found >= 0
        assert known.mean() > 0.5
        assert np.array_equal(found[known] // len(SHAPES), labels[known] // len(SHAPES))


@pytest.mark.parametrize("turn", [lambda p: p[:, ::-1], lambda p: p[:, :, ::-1], lambda p: p.swapaxes(1, 2)])
def test_the_ruler_does_not_mind_which_way_is_up(turn: Callable[[np.ndarray], np.ndarray]) -> None:
    pixels, labels = load(480, 32)
    assert np.array_equal(recognise(turn(pixels)), labels)


@pytest.mark.parametrize("side", [48, 64, 128])
def test_shapes_lie_inside_the_frame(side: int) -> None:
    """Where they lie does not depend on the side; at fewer pixels the soft edge may reach the border."""
    pixels, _ = load(960, side)
    chroma = np.ptp(pixels.astype(np.int16), axis=3)
    border = np.ones((side, side), bool)
    border[1:-1, 1:-1] = False
    assert chroma[:, border].max() == 0
    assert chroma[:, ~border].max(axis=1).min() > 100


def test_every_shape_is_visible_at_eight_pixels() -> None:
    pixels, _ = load(2400, 8)
    assert np.ptp(pixels.astype(np.int16), axis=3).max(axis=(1, 2)).min() > 80


def canvas(*marks: tuple[tuple[int, int, int], Callable[[np.ndarray, np.ndarray], np.ndarray]]) -> np.ndarray:
    """One picture of 64 pixels: each mark is a colour and where it goes, from -1 to 1 each way."""
    y, x = np.mgrid[-1:1:64j, -1:1:64j]
    picture = np.full((64, 64, 3), 120, np.uint8)
    for colour, where in marks:
        picture[where(x, y)] = colour
    return picture[None]


def disc(left: float = 0, top: float = 0, radius: float = 0.5) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda x, y: np.hypot(x - left, y - top) < radius


def box(width: float, height: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda x, y: (np.abs(x) < width) & (np.abs(y) < height)


RED, CYAN, YELLOW = (220, 40, 40), (40, 200, 220), (220, 200, 40)
SLOPE = np.broadcast_to(np.linspace(0, 255, 64).astype(np.uint8)[:, None, None], (64, 64, 3))
DRAWN = [
    ("healthy disc", canvas((RED, disc())), "red circle"),
    ("healthy box", canvas((CYAN, box(0.5, 0.5))), "cyan square"),
    ("healthy ring", canvas((YELLOW, disc()), ((120, 120, 120), disc(radius=0.26))), "yellow ring"),
    ("near miss: a little oval", canvas((RED, lambda x, y: np.hypot(x, 1.06 * y) < 0.5)), "red circle"),
    ("near miss: one wrong pixel", canvas((RED, disc()), (CYAN, lambda x, y: (x == -1) & (y == -1))), "red circle"),
    ("black", canvas(((0, 0, 0), box(2, 2))), None),
    ("white", canvas(((255, 255, 255), box(2, 2))), None),
    ("all red", canvas((RED, box(2, 2))), None),
    ("grey slope", SLOPE[None], None),
    ("grey disc", canvas(((250, 250, 250), disc())), None),
    ("noise", np.random.default_rng(0).integers(0, 256, (8, 64, 64, 3), np.uint8), None),
    ("grey noise", noisy(canvas(), 20), None),
    ("pale disc", canvas(((160, 100, 100), disc())), None),
    ("orange disc", canvas(((235, 130, 40), disc())), None),
    ("two colours", canvas((RED, disc(-0.5, 0, 0.4)), (CYAN, disc(0.5, 0, 0.4))), None),
    ("two halves", canvas((RED, disc()), (YELLOW, lambda x, y: disc()(x, y) & (x > 0))), None),
    ("two of one colour", canvas((RED, disc(-0.5, 0, 0.4)), (RED, disc(0.5, 0, 0.4))), None),
    ("disc with a satellite", canvas((RED, disc(-0.2)), (RED, disc(0.7, 0.7, 0.2))), None),
    ("speck", canvas((RED, disc(radius=0.1))), None),
    ("bar", canvas((RED, box(0.8, 0.25))), None),
    ("oval", canvas((RED, lambda x, y: np.hypot(x, 1.5 * y) < 0.7)), None),
    ("half disc", canvas((RED, lambda x, y: disc(radius=0.7)(x, y) & (y > 0))), None),
    ("crescent", canvas((RED, disc(radius=0.7)), ((120, 120, 120), disc(0.35, 0, 0.55))), None),
    ("cross", canvas((RED, box(0.75, 0.2)), (RED, box(0.2, 0.75))), None),
    ("frame", canvas((RED, box(0.6, 0.6)), ((120, 120, 120), box(0.35, 0.35))), None),
    ("thin ring", canvas((RED, disc(radius=0.7)), ((120, 120, 120), disc(radius=0.62))), None),
    ("open ring", canvas((RED, lambda x, y: disc()(x, y) & ~disc(radius=0.26)(x, y) & ((x < 0) | (y < 0)))), None),
    ("star", canvas((RED, lambda x, y: np.hypot(x, y) < 0.5 + 0.25 * np.cos(5 * np.arctan2(y, x)))), None),
    ("cut disc", canvas((RED, disc(-0.9, 0, 0.6))), None),
]  # fmt: skip


@pytest.mark.parametrize(("picture", "mode"), [row[1:] for row in DRAWN], ids=[row[0] for row in DRAWN])
def test_the_ruler_knows_what_is_none(picture: np.ndarray, mode: str | None) -> None:
    wanted = -1 if mode is None else MODES.index(mode)
    assert (recognise(picture) == wanted).all()
    assert (recognise(picture[:, ::2, ::2]) == wanted).all(), "at 32 pixels"


def test_the_ruler_takes_nothing_and_refuses_what_it_cannot_read() -> None:
    assert recognise(np.zeros((0, 16, 16, 3), np.uint8)).shape == (0,)
    for wrong in (np.zeros((1, 16, 16, 3)), np.zeros((1, 16, 16, 1), np.uint8), np.zeros((16, 16, 3), np.uint8)):
        with pytest.raises(AssertionError):
            recognise(wrong)


def test_hues_are_far_apart() -> None:
    angles = np.array([*HUES.values(), 360 + next(iter(HUES.values()))])
    assert np.diff(angles).min() >= 50
