"""The pieces of the data benchmark at a tiny size: they measure what they say, and their verdict can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bench import data, measure
from bench.data import BATCH, PLAIN, SCAN, SIDE, STORED, THREADS, Loader, Sizes, Stretch
from safelight.config.tree import Data
from safelight.data import cache
from safelight.data.batches import Batches
from safelight.data.listing import digest
from safelight.data.prepare import open_images
from safelight.data.sources.image_folder import ImageFolder

FILES = 3


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photographs")
    data.make_photographs(folder, FILES)
    return folder


def test_the_pictures_are_as_heavy_as_photographs(photographs: Path) -> None:
    files = sorted(photographs.iterdir())
    assert len(files) == FILES
    assert all(40_000 < path.stat().st_size < 130_000 for path in files)
    with Image.open(files[0]) as image:
        assert (image.format, image.size) == ("JPEG", (STORED, STORED))


def test_all_contenders_make_the_same_pictures(photographs: Path, tmp_path: Path) -> None:
    images = open_images(Data(source=str(photographs), image_size=SIDE, cache=str(tmp_path)))
    plain = [data.decode_plainly(path, Image.Resampling.BILINEAR) for path in sorted(photographs.iterdir())]
    assert np.abs(images.pixels.astype(int) - np.stack(plain)).mean() < 4
    ranges = [(data.Pictures(photographs, normalise=n)[0].min(), n) for n in (True, False)]
    assert [(low < 0) == normalised for low, normalised in ranges] == [True, True]


def test_prefetched_batches_come_in_order_with_any_number_of_threads(photographs: Path, tmp_path: Path) -> None:
    images = open_images(Data(source=str(photographs), image_size=SIDE, cache=str(tmp_path)))
    batches = Batches(images, seed=0, batch_size=BATCH)
    found = [list(data.prefetched(batches, range(2, 8), threads)) for threads in THREADS]
    assert [len(each) for each in found] == [6] * len(THREADS)
    for each in found:
        assert all(torch.equal(a.images, batches.rows(step, 0, BATCH).images) for step, a in enumerate(each, 2))


def test_every_loader_has_its_turn_in_every_round_and_one_to_warm_up() -> None:
    called = list[str]()
    contenders = {name: Loader(4, lambda name=name: called.append(name)) for name in ("a", "b")}
    assert [len(seconds) for seconds in data.measure_batches(contenders, 3).values()] == [3, 3]
    assert called == ["a", "b", "b", "a", "a", "b", "b", "a"]


def test_the_factor_is_that_over_the_best_of_the_others() -> None:
    ours = {data.threads_called(threads): [0.1, 0.1] for threads in THREADS}
    rows, factor = data.batch_rows(ours | {"slow": [9.0, 9.0], "fast": [4.0, 4.0]})
    assert factor == pytest.approx(40)
    assert [row[1] for row in rows] == [*ours, "slow", "fast"]


def test_scans_are_new_every_time(photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # This process may have computed with torch, and should not fork.
    monkeypatch.setattr(data, "plain_loop", lambda folder: [data._shrunk(path) for path in folder.iterdir()])
    seconds = data.measure_scans(photographs, tmp_path, 1)
    assert [*seconds] == [SCAN, PLAIN]
    assert len(list(tmp_path.glob(f"scan-*/*/{cache.MANIFEST}"))) == 2  # one of them to warm up
    rows, factor = data.scan_rows({SCAN: [2.0], PLAIN: [3.0]}, photographs)
    assert factor == 1.5
    assert len(rows) == 2


def test_waiting_is_a_part_of_the_time() -> None:
    found = data.measure_waiting(data.demo_parts(), steps=1, rounds=1)
    assert [*found] == [*THREADS]
    assert all(0 < stretch.waited < stretch.seconds for [stretch] in found.values())
    rows, share = data.waiting_rows({0: [Stretch(1, 4)], 1: [Stretch(1, 2)]}, steps=1)
    assert share == {0: 0.25, 1: 0.5}[data.DEFAULT_THREADS]
    assert len(rows) == 2


def test_the_large_cache_is_a_cache(tmp_path: Path) -> None:
    folder = tmp_path / "large-8px-cache"
    data.make_cache(folder, 5000)
    seconds, grown = data.measure_opening(folder, 2)
    assert len(seconds) == 2
    assert grown < 100e6
    images = cache.open_cache(folder)
    assert images is not None
    assert len(images) == 5000
    assert images.names is not None
    assert images.names[4999] == "9/00004999.png"
    assert images.take(np.array([0, 4999])).shape == (2, 8, 8, 1)


def test_the_walk_sees_every_file(tmp_path: Path) -> None:
    data.make_listing(tmp_path, 120)
    assert len(data.measure_walk(tmp_path, 2)) == 2
    assert digest(ImageFolder(tmp_path).entries()).startswith("120:")


@pytest.mark.parametrize("good", [True, False])
def test_the_verdict_is_the_exit_code(good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    asked = list[Sizes]()
    monkeypatch.setattr(data, "compare", lambda scratch, sizes: asked.append(sizes) or ([["a"] * 4], ["note"], good))
    assert data.main(["--quick", "--rounds", "1"]) == (0 if good else 1)
    assert asked == [replace(data.QUICK, rounds=1)]
    assert "| a | a | a | a |" in (tmp_path / "data.md").read_text()


def test_too_few_files_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        data.main(["--files", "3"])
    assert "at least 64 files" in capsys.readouterr().err
