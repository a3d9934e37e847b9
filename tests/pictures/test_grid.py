"""Grids, strips and pairs: every pixel of every image in its place, broken ones in magenta."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from safelight.pictures.grid import (
    BACKGROUND,
    BROKEN,
    CAPTION_SIZE,
    GAP,
    MARGIN,
    SEAM,
    TITLE_SIZE,
    font,
    grid,
    pairs,
    pleasant_columns,
    save_png,
    shorten,
    side_by_side,
    strip,
    to_uint8,
)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def test_every_byte_survives_the_way_to_floats_and_back() -> None:
    values = np.arange(256, dtype=np.float32) / np.float32(127.5) - 1
    images = torch.from_numpy(values).reshape(1, 1, 16, 16)
    assert to_uint8(images).ravel().tolist() == list(range(256))


def test_values_outside_the_range_are_clamped_and_channels_move_last() -> None:
    images = torch.tensor([-5.0, 0.0, 5.0]).reshape(1, 3, 1, 1).expand(2, 3, 4, 5).bfloat16().requires_grad_()
    pixels = to_uint8(images)
    assert pixels.shape == (2, 4, 5, 3)
    assert pixels[1, 3, 4].tolist() == [0, 128, 255]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_not_finite_is_magenta(value: float, channels: int) -> None:
    images = torch.zeros(2, channels, 4, 4)
    images[1, 0, 2, 3] = value
    pixels = to_uint8(images)
    assert pixels.shape == (2, 4, 4, 3)
    assert pixels[1, 2, 3].tolist() == list(BROKEN)
    assert (pixels == 128).all(axis=3).sum() == 2 * 16 - 1


@pytest.mark.parametrize(("side", "factor"), [(1, 64), (8, 8), (16, 4), (28, 2), (32, 2), (33, 1), (64, 1), (100, 1)])
def test_images_stand_in_rows_enlarged_by_a_whole_factor(side: int, factor: int) -> None:
    images = noise(5, side, side, 3)
    page = np.asarray(grid(images, columns=3))
    cell = side * factor
    assert page.shape == (2 * cell + GAP + 2 * MARGIN, 3 * cell + 2 * GAP + 2 * MARGIN, 3)
    for index in range(5):
        top = MARGIN + index // 3 * (cell + GAP)
        left = MARGIN + index % 3 * (cell + GAP)
        shown = page[top : top + cell : factor, left : left + cell : factor]
        assert np.array_equal(shown, images[index])
    assert (page[-MARGIN:] == BACKGROUND).all()
    assert (page[:, MARGIN + cell : MARGIN + cell + GAP] == BACKGROUND).all()


def test_title_and_captions_take_room_of_their_own() -> None:
    images = noise(4, 8, 8, 1)
    bare, titled = grid(images), grid(images, title="step 1,000")
    both = grid(images, title="step 1,000 " * 99, captions=["a", "b", "a very long name of a class", ""])
    assert bare.width == titled.width == both.width
    assert bare.height < titled.height < both.height
    head = np.asarray(titled)[: titled.height - bare.height + MARGIN]
    assert (head != BACKGROUND).any()
    shorter = np.asarray(titled)[titled.height - bare.height :]
    assert np.array_equal(shorter[MARGIN:], np.asarray(bare)[MARGIN:]), "the images themselves do not change"


def test_one_caption_per_image_is_asked_for() -> None:
    with pytest.raises(AssertionError):
        grid(noise(4, 8, 8, 1), captions=["a"])


@pytest.mark.parametrize(
    ("count", "columns"), [(0, 1), (1, 1), (2, 2), (3, 3), (4, 2), (7, 4), (10, 5), (16, 4), (32, 8), (64, 8)]
)
def test_columns_leave_few_empty_places(count: int, columns: int) -> None:
    assert pleasant_columns(count) == columns


def test_long_words_end_in_an_ellipsis_that_fits() -> None:
    face = font(11)
    text = shorten("a very long name of a class", face, 60)
    assert text.endswith("…")
    assert face.getlength(text) <= 60
    assert shorten("short", face, 60) == "short"


def test_two_sets_stand_side_by_side() -> None:
    left, right = noise(4, 16, 16, 1), noise(4, 16, 16, 3)
    page = np.asarray(side_by_side(left, right, labels=("raw weights", "EMA weights")))
    single = grid(left, title="raw weights")
    assert page.shape[0] == single.height
    assert np.array_equal(page[:, : single.width - MARGIN], np.asarray(single)[:, : single.width - MARGIN])
    alone = np.asarray(grid(right, title="EMA weights"))
    assert np.array_equal(page[:, -single.width + MARGIN :], alone[:, MARGIN:])


def test_a_strip_has_a_row_per_image_and_a_column_per_stage() -> None:
    frames = noise(5, 2, 32, 32, 3)
    page = np.asarray(strip(frames, captions=[f"t = {t}" for t in (999, 750, 500, 250, 0)]))
    top = page.shape[0] - MARGIN - 2 * 64 - GAP
    for stage in range(5):
        for image in range(2):
            y, x = top + image * (64 + GAP), MARGIN + stage * (64 + GAP)
            assert np.array_equal(page[y : y + 64 : 2, x : x + 64 : 2], frames[stage, image])
    assert (page[MARGIN - 2 : top] != BACKGROUND).any(), "captions above"
    with pytest.raises(AssertionError):
        strip(frames, captions=["t = 999"])


def test_a_png_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "samples" / "step_00000001.png"
    save_png(grid(noise(4, 8, 8, 3)), path)
    before = path.read_bytes()
    with open(path, "rb") as reader:
        save_png(grid(noise(9, 8, 8, 3)), path)
        assert reader.read() == before, "who reads the old picture goes on reading it"
    with Image.open(path) as image:
        image.load()
    before = path.read_bytes()

    def half(image: Image.Image, file, kind: str) -> None:
        file.write(b"half a picture")
        raise OSError("disk full")

    monkeypatch.setattr(Image.Image, "save", half)
    with pytest.raises(OSError, match="disk full"):
        save_png(grid(noise(9, 8, 8, 3)), path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def seeded_noise(count: int, side: int, channels: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, channels), np.uint8)


PAIRS_TOP = MARGIN + TITLE_SIZE + 10


@pytest.mark.parametrize(
    ("count", "side", "factor", "channels", "others"),
    [
        (1, 8, 8, 3, 3),
        (1, 8, 8, 1, 1),
        (3, 28, 2, 1, 1),
        (3, 28, 2, 1, 3),  # grey samples of a model beside colour, and the other way round
        (3, 28, 2, 3, 1),
        (8, 16, 4, 3, 3),
        (9, 16, 4, 3, 3),  # the first that needs a second row
        (16, 33, 1, 3, 3),
        (16, 64, 1, 3, 3),
        (2, 65, 1, 3, 3),
        (2, 100, 1, 1, 1),
    ],
)
def test_each_sample_stands_above_its_original(count: int, side: int, factor: int, channels: int, others: int) -> None:
    samples, originals = seeded_noise(count, side, channels, 0), seeded_noise(count, side, others, 1)
    page = np.asarray(pairs(samples, originals, [f"{place / 100:.2f}" for place in range(count)]))
    cell, columns = side * factor, min(8, count)
    tall = 2 * cell + SEAM
    pitch = tall + GAP + CAPTION_SIZE + 7
    assert page.shape[1] == columns * (cell + GAP) - GAP + 2 * MARGIN
    for place in range(count):
        top, left = PAIRS_TOP + place // columns * pitch, MARGIN + place % columns * (cell + GAP)
        tile = page[top : top + tall, left : left + cell]
        for shown, meant in ((tile[:cell], samples[place]), (tile[cell + SEAM :], originals[place])):
            enlarged = np.broadcast_to(meant, (side, side, 3)).repeat(factor, 0).repeat(factor, 1)
            assert np.array_equal(shown, enlarged)
        assert (tile[cell : cell + SEAM] == BACKGROUND).all(), "the seam"
        below = page[top + tall : top + tall + CAPTION_SIZE + 7, left : left + cell]
        assert (below != BACKGROUND).any(), "the caption"


def test_the_order_is_kept() -> None:
    """The negative control: exchanged originals are another page, and so are exchanged captions."""
    samples, originals = seeded_noise(2, 8, 3, 0), seeded_noise(2, 8, 3, 1)
    page = np.asarray(pairs(samples, originals, ["0.10", "0.90"]))
    assert np.array_equal(page, np.asarray(pairs(samples, originals, ["0.10", "0.90"])))
    assert not np.array_equal(page, np.asarray(pairs(samples, originals[::-1], ["0.10", "0.90"])))
    assert not np.array_equal(page, np.asarray(pairs(samples, originals, ["0.90", "0.10"])))
    assert not np.array_equal(page, np.asarray(pairs(originals, samples, ["0.10", "0.90"])))


def test_the_given_pixels_are_left_as_they_are() -> None:
    samples, originals = seeded_noise(2, 8, 1, 0), seeded_noise(2, 8, 1, 1)
    kept = samples.copy(), originals.copy()
    pairs(samples, originals, ["", ""])
    assert np.array_equal(samples, kept[0])
    assert np.array_equal(originals, kept[1])


@pytest.mark.parametrize(("samples", "originals", "captions"), [(3, 2, 3), (2, 3, 2), (3, 3, 2)])
def test_unequal_numbers_are_refused(samples: int, originals: int, captions: int) -> None:
    with pytest.raises(AssertionError, match="one original and one caption"):
        pairs(seeded_noise(samples, 8, 3, 0), seeded_noise(originals, 8, 3, 1), [""] * captions)
