"""Features of real images: of the right pixels, computed once, and never taken from a file that is not what it was."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from torch import Tensor, nn

from safelight.data.images import Images
from safelight.evaluate import real as module
from safelight.evaluate.features import Extractor, extract, own_extractor
from safelight.evaluate.real import choose, real_features, real_pixels

SIDE = 8


class Counting(nn.Module):
    """Knows what it was shown, also as the copy that an extractor makes of it."""

    def __init__(self, seen: list[int], weight: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))
        self.seen = seen

    def __deepcopy__(self, _: object) -> Counting:
        return Counting(self.seen, self.weight.item())

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        return nn.functional.adaptive_avg_pool2d(x, 2).flatten(1) * self.weight


def counting(seen: list[int], weight: float = 1.0, name: str = "counting", side: int = SIDE) -> Extractor:
    found = own_extractor(Counting(seen, weight), name=name, side=side)
    seen.clear()  # it is tried out when it is made
    return found


def images(count: int = 20, side: int = SIDE, seed: int = 0, fingerprint: str = "one") -> Images:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), np.uint8)
    return Images(pixels, None, (), fingerprint)


ROWS = np.arange(3, 17)


def files(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


# Which rows


@pytest.mark.parametrize(
    ("length", "count"), [(10, 10), (10, 11), (10, 9), (10, 2), (10, 1), (1, 5), (2049, 2048), (4095, 2048), (997, 100)]
)
def test_rows_are_spread_evenly_and_none_comes_twice(length: int, count: int) -> None:
    ids = np.arange(length) * 7 + 3
    chosen = choose(ids, count)
    assert np.array_equal(chosen, choose(ids, count))
    assert len(chosen) == len(set(chosen.tolist())) == min(length, count)
    assert set(chosen.tolist()) <= set(ids.tolist())
    assert (np.diff(chosen) > 0).all()
    if 1 < count < length:
        places = (chosen - 3) // 7
        assert (places[0], places[-1]) == (0, length - 1)
        assert np.ptp(np.diff(places)) <= 1, "no gap is wider than another by more than one row"


# Which pixels


@pytest.mark.parametrize(("stored", "margin"), [(8, 0), (9, 0), (10, 1), (12, 2), (16, 4)])
def test_the_middle_of_larger_images_is_taken(stored: int, margin: int) -> None:
    many = images(side=stored)
    ids = np.array([5, 0, 5])
    found = real_pixels(many, ids, SIDE)
    assert found.shape == (3, 3, SIDE, SIDE)
    assert found.dtype == np.uint8
    assert found.flags.c_contiguous
    middle = many.pixels[ids, margin : margin + SIDE, margin : margin + SIDE]
    assert np.array_equal(found.transpose(0, 2, 3, 1), middle)


def test_grey_images_keep_their_one_channel() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 10, 10, 1), np.uint8)
    found = real_pixels(Images(pixels, None, (), "grey"), np.arange(4), SIDE)
    assert np.array_equal(found[:, 0], pixels[:, 1:9, 1:9, 0])


# The cache


def test_features_are_computed_once(tmp_path: Path) -> None:
    seen: list[int] = []
    extractor, many = counting(seen), images()
    first = real_features(many, ROWS, extractor, side=SIDE, cache=tmp_path)
    assert sum(seen) == len(ROWS)
    assert np.array_equal(first, extract(extractor, real_pixels(many, ROWS, SIDE)))
    seen.clear()
    again = real_features(many, ROWS, extractor, side=SIDE, cache=tmp_path)
    assert seen == []
    assert np.array_equal(first, again)
    assert again.dtype == np.float32
    assert len(files(tmp_path)) == 1


def test_without_what_was_kept_they_are_computed_each_time(tmp_path: Path) -> None:
    """The negative control: it is the file that saves the work."""
    seen: list[int] = []
    extractor, many = counting(seen), images()
    for place in ("one", "other"):
        seen.clear()
        real_features(many, ROWS, extractor, side=SIDE, cache=tmp_path / place)
        assert sum(seen) == len(ROWS)


def test_many_images_are_read_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 6)
    seen, taken = list[int](), list[int]()
    many = images()
    take = Images.take
    monkeypatch.setattr(Images, "take", lambda self, ids: taken.append(len(ids)) or take(self, ids))
    extractor = counting(seen)
    found = real_features(many, ROWS, extractor, side=SIDE, cache=tmp_path)
    assert taken == [6, 6, 2]
    assert sum(seen) == len(ROWS)
    assert np.array_equal(found, extract(extractor, real_pixels(many, ROWS, SIDE)))


OTHERS: dict[str, Callable[[list[int]], tuple[Images, np.ndarray, Extractor, int]]] = {
    "other weights": lambda seen: (images(), ROWS, counting(seen, 2.0), SIDE),
    "another name": lambda seen: (images(), ROWS, counting(seen, name="other"), SIDE),
    "another side of the network": lambda seen: (images(), ROWS, counting(seen, side=10), SIDE),
    "another way of resizing": lambda seen: (images(), ROWS, replace(counting(seen), resize="clean"), SIDE),
    "other rows": lambda seen: (images(), ROWS + 1, counting(seen), SIDE),
    "the same rows in another order": lambda seen: (images(), ROWS[::-1], counting(seen), SIDE),
    "fewer rows": lambda seen: (images(), ROWS[:-1], counting(seen), SIDE),
    "another side of the images": lambda seen: (images(), ROWS, counting(seen), SIDE - 2),
    "other images": lambda seen: (images(seed=1, fingerprint="two"), ROWS, counting(seen), SIDE),
}


@pytest.mark.parametrize(
    "other",
    [pytest.param(other, id=name) for name, other in OTHERS.items()],
)
def test_whatever_they_depend_on_is_part_of_the_key(
    tmp_path: Path, other: Callable[[list[int]], tuple[Images, np.ndarray, Extractor, int]]
) -> None:
    seen: list[int] = []
    first = real_features(images(), ROWS, counting(seen), side=SIDE, cache=tmp_path)
    many, rows, extractor, side = other(seen)
    found = real_features(many, rows, extractor, side=side, cache=tmp_path)
    assert sum(seen) == len(rows)
    assert len(files(tmp_path)) == 2
    assert np.array_equal(found, extract(extractor, real_pixels(many, rows, side)))
    seen.clear()
    assert np.array_equal(real_features(images(), ROWS, counting(seen), side=SIDE, cache=tmp_path), first)
    assert seen == [], "the first ones are still there"


def test_equal_rows_of_another_integer_type_are_the_same_key(tmp_path: Path) -> None:
    """The near miss: the numbers count, not the bytes that hold them."""
    seen: list[int] = []
    real_features(images(), ROWS, counting(seen), side=SIDE, cache=tmp_path)
    seen.clear()
    real_features(images(), ROWS.astype(np.int32), counting(seen), side=SIDE, cache=tmp_path)
    assert seen == []


def written(values: np.ndarray, name: str = "features", check: str | None = None) -> bytes:
    right = hashlib.sha256(values.tobytes()).hexdigest()
    return save({name: values}, {"check": right if check is None else check})


def flipped(place: int) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[place] ^= 1
        return bytes(changed)

    return flip


SHAPE = (len(ROWS), 12)
RAMP = np.arange(len(ROWS) * 12, dtype=np.float32).reshape(SHAPE)
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda content: content[: len(content) // 2],
    "the last byte is missing": lambda content: content[:-1],
    "a byte too many": lambda content: content + b"\0",
    "the length alone": lambda content: content[:8],
    "a length beyond the file": lambda content: b"\xff" * 8 + content[8:],
    "zeroes": lambda content: bytes(len(content)),
    "words": lambda _: b"not a file of tensors at all",
    "a bit of the first number": lambda content: flipped(8 + int.from_bytes(content[:8], "little"))(content),
    "a bit of the last number": flipped(-1),
    "a bit in the middle of the numbers": flipped(-200),
    "another name inside": lambda _: written(RAMP, name="feature"),
    "more rows": lambda _: written(np.zeros((len(ROWS) + 1, 12), np.float32)),
    "fewer rows": lambda _: written(RAMP[:-1]),
    "another dimension": lambda _: written(np.zeros((len(ROWS), 11), np.float32)),
    "turned": lambda _: written(np.ascontiguousarray(RAMP.T)),
    "flat": lambda _: written(RAMP.ravel()),
    "doubles": lambda _: written(RAMP.astype(np.float64)),
    "no check": lambda _: save({"features": RAMP}),
    "a wrong check": lambda _: written(RAMP, check="0" * 64),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_computed_again_and_replaced(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    seen: list[int] = []
    extractor = counting(seen)
    first = real_features(images(), ROWS, extractor, side=SIDE, cache=tmp_path)
    [path] = files(tmp_path)
    sound = path.read_bytes()
    path.write_bytes(damage(sound))
    assert path.read_bytes() != sound
    seen.clear()
    found = real_features(images(), ROWS, extractor, side=SIDE, cache=tmp_path)
    assert sum(seen) == len(ROWS)
    assert np.array_equal(found, first)
    assert files(tmp_path) == [path]
    seen.clear()
    assert np.array_equal(real_features(images(), ROWS, extractor, side=SIDE, cache=tmp_path), first)
    assert seen == [], "a sound file took its place"


def test_a_whole_file_is_what_is_returned(tmp_path: Path) -> None:
    """The negative control: what passes every check is read, so the rows above fail for their damage alone."""
    seen: list[int] = []
    real_features(images(), ROWS, counting(seen), side=SIDE, cache=tmp_path)
    [path] = files(tmp_path)
    path.write_bytes(written(RAMP))
    seen.clear()
    assert np.array_equal(real_features(images(), ROWS, counting(seen), side=SIDE, cache=tmp_path), RAMP)
    assert seen == []


def a_file_in_the_way(cache: Path, _: pytest.MonkeyPatch) -> None:
    cache.write_text("a file, not a folder")


def a_file_where_the_features_go(cache: Path, _: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    (cache / "features").write_text("a file, not a folder")


def a_full_disk(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_atomically", full)


def a_folder_in_place_of_the_file(cache: Path, _: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real_features(images(), ROWS, counting(seen), side=SIDE, cache=cache)
    [path] = files(cache)
    path.unlink()
    (path / "inside").mkdir(parents=True)


@pytest.mark.parametrize(
    "spoil", [a_file_in_the_way, a_file_where_the_features_go, a_full_disk, a_folder_in_place_of_the_file]
)
def test_a_cache_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    cache = tmp_path / "cache"
    spoil(cache, monkeypatch)
    seen: list[int] = []
    extractor = counting(seen)
    for _ in range(2):
        seen.clear()
        found = real_features(images(), ROWS, extractor, side=SIDE, cache=cache)
        assert np.array_equal(found, extract(counting([]), real_pixels(images(), ROWS, SIDE)))
        assert sum(seen) == len(ROWS)
    assert not list(tmp_path.rglob(".tmp-*")), "nothing half written stays"
