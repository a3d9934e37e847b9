"""The time-lapse: all stages, steady colours, the end held, and no picture it cannot do without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from oddities import bomb
from PIL import Image

from safelight.pictures.grid import BACKGROUND, BROKEN, MARGIN, grid, save_png
from safelight.pictures.timelapse import MOST_FRAMES, MOST_PIXELS, timelapse


def stage(folder: Path, step: int, share: float, side: int = 16, count: int = 9) -> tuple[int, Path]:
    """A grid that develops from noise to a coloured disc."""
    generator = np.random.default_rng(step)
    y, x = np.mgrid[:side, :side] - side / 2
    disc = np.where((x**2 + y**2 < side * side / 9)[..., None], (230, 120, 40), (10, 30, 90))
    images = share * disc + (1 - share) * generator.integers(0, 256, (count, side, side, 3))
    save_png(grid(images.astype(np.uint8)), path := folder / f"step_{step:08}.png")
    return step, path


def frames(path: Path) -> list[tuple[np.ndarray, int]]:
    read = []
    with Image.open(path) as image:
        for index in range(getattr(image, "n_frames", 1)):
            image.seek(index)
            read.append((np.asarray(image.convert("RGB")).astype(int), image.info["duration"]))
    return read


def test_stages_follow_one_another_and_the_last_is_held(tmp_path: Path) -> None:
    stages = [stage(tmp_path, step, step / 10_000) for step in range(0, 10_001, 1000)]
    timelapse(stages[::-1], out := tmp_path / "timelapse.gif", seconds=6)
    shown = frames(out)
    assert len(shown) == 11
    assert len({duration for _, duration in shown[:-1]}) == 1
    assert sum(duration for _, duration in shown[:-1]) == pytest.approx(6000 * 10 / 11, rel=0.05)
    assert shown[-1][1] >= shown[0][1] + 1500
    with Image.open(stages[-1][1]) as last:
        error = np.abs(shown[-1][0][: last.height - MARGIN] - np.asarray(last)[: last.height - MARGIN])
    assert error.mean() < 2, "the final picture keeps its colours"
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_colours_do_not_flicker(tmp_path: Path) -> None:
    timelapse([stage(tmp_path, step, step / 500) for step in range(0, 501, 50)], out := tmp_path / "a.gif")
    for pixels, _ in frames(out):
        assert (pixels[:MARGIN] == BACKGROUND).all()
        assert (pixels[:, :MARGIN] == BACKGROUND).all()
    data = out.read_bytes()
    with Image.open(out) as image:
        image.seek(3)
        assert image.global_palette is not None  # type: ignore[attr-defined]
    assert data[10] & 0x80, "one palette for the whole file"


def test_the_step_is_shown_below_the_picture(tmp_path: Path) -> None:
    timelapse([stage(tmp_path, 0, 0), stage(tmp_path, 20_000, 1)], out := tmp_path / "a.gif")
    with Image.open(tmp_path / "step_00020000.png") as last:
        height = last.height
    first, second = (pixels[height - MARGIN :] for pixels, _ in frames(out))
    assert (first != BACKGROUND).any()
    assert not np.array_equal(first, second)


def test_pictures_that_cannot_be_read_are_skipped(tmp_path: Path) -> None:
    good = [stage(tmp_path, step, 0.5) for step in (0, 200)]
    (tmp_path / "empty.png").touch()
    (tmp_path / "cut.png").write_bytes(good[0][1].read_bytes()[:500])
    bad = [(100, tmp_path / "empty.png"), (150, tmp_path / "cut.png"), (300, tmp_path / "missing.png")]
    timelapse(good + bad, out := tmp_path / "a.gif")
    assert len(frames(out)) == 2
    timelapse(bad, tmp_path / "none.gif")
    assert not (tmp_path / "none.gif").exists()
    timelapse([], tmp_path / "none.gif")
    assert not (tmp_path / "none.gif").exists()


def test_broken_pixels_stay_magenta(tmp_path: Path) -> None:
    images = np.full((4, 16, 16, 3), 90, np.uint8)
    images[2, 3:6, 3:6] = BROKEN
    save_png(grid(images), tmp_path / "broken.png")
    stages = [(0, tmp_path / "broken.png"), stage(tmp_path, 1, 1, count=4), stage(tmp_path, 2, 1, count=4)]
    timelapse(stages, out := tmp_path / "a.gif")
    assert (frames(out)[0][0] == BROKEN).all(axis=2).sum() == (3 * 4) ** 2


def test_many_large_and_unequal_stages_stay_modest(tmp_path: Path) -> None:
    _, small = stage(tmp_path, 1, 0.9)
    _, large = stage(tmp_path, 2, 0.9, side=200, count=12)
    timelapse([(step, small) for step in range(100)] + [(100, large)], out := tmp_path / "a.gif")
    shown = frames(out)
    assert len(shown) == MOST_FRAMES
    heights, widths = {pixels.shape[0] for pixels, _ in shown}, {pixels.shape[1] for pixels, _ in shown}
    assert len(heights) == 1
    assert widths == {MOST_PIXELS}
    assert out.stat().st_size < 1_000_000


def test_a_picture_of_too_many_pixels_is_left_out(tmp_path: Path) -> None:
    stages = [stage(tmp_path, 1, 0.1), (2, tmp_path / "step_00000002.png"), stage(tmp_path, 3, 1.0)]
    stages[1][1].write_bytes(bomb(30_000, 30_000))
    timelapse(stages, out := tmp_path / "timelapse.gif")
    assert len(frames(out)) == 2


def test_a_frame_lasts_no_longer_than_the_format_can_say(tmp_path: Path) -> None:
    timelapse([stage(tmp_path, 1, 0.1), stage(tmp_path, 2, 0.5)], out := tmp_path / "timelapse.gif", seconds=1e9)
    assert [duration for _, duration in frames(out)] == [598_000, 600_000]
