"""The cache: what changed is read again, what did not is not, and what is damaged is never believed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
from oddities import photograph
from PIL import Image

from safelight.config.tree import Data
from safelight.data import cache, prepare
from safelight.data.images import Images
from safelight.data.prepare import open_images
from safelight.errors import DataError


@pytest.fixture
def top(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    for number in range(12):
        (folder / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        photograph(20 + number, 20).save(folder / "ab"[number % 2] / f"{number:02}.png")
    return folder


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all files that are decoded, as they are."""
    seen: list[str] = []
    scan = prepare.scan

    def listening(names, data):  # type: ignore[no-untyped-def]
        return scan((seen.append(name) or name for name in names), data)

    monkeypatch.setattr(prepare, "scan", listening)
    return seen


def read(top: Path, **settings: object) -> Images:
    given = {"image_size": 8} | settings
    return open_images(Data(source=str(top), cache=str(top.parent / "cache"), **given))  # type: ignore[arg-type]


def fresh(top: Path, **settings: object) -> str:
    """The fingerprint without any help of an earlier cache."""
    given = {"image_size": 8} | settings
    elsewhere = str(top.parent / f"fresh {time.monotonic_ns()}")
    return open_images(Data(source=str(top), cache=elsewhere, **given)).fingerprint  # type: ignore[arg-type]


def folders(top: Path) -> list[Path]:
    return sorted(path.parent for path in (top.parent / "cache").glob("*/manifest.json"))


def test_the_second_time_nothing_is_decoded(top: Path, scanned: list[str]) -> None:
    first = read(top)
    assert len(scanned) == 12
    second = read(top)
    assert len(scanned) == 12
    assert np.array_equal(first.pixels, second.pixels)
    assert (first.fingerprint, first.class_names, first.facts) == (second.fingerprint, second.class_names, second.facts)


def add(top: Path) -> list[str]:
    photograph(33, 20).save(top / "a" / "05b.png")
    return ["a/05b.png"]


def change(top: Path) -> list[str]:
    photograph(44, 20).save(top / "b" / "03.png")
    return ["b/03.png"]


def touch(top: Path) -> list[str]:
    os.utime(top / "b" / "03.png", ns=(1, 1))
    return ["b/03.png"]


def same_size_and_name(top: Path) -> list[str]:
    size = (top / "b" / "03.png").stat().st_size
    Image.new("L", (9, 9), 7).save(top / "b" / "03.png")
    with open(top / "b" / "03.png", "ab") as file:
        file.write(b"\0" * (size - file.tell()))
    os.utime(top / "b" / "03.png", ns=(5, 5))
    return ["b/03.png"]


def rename(top: Path) -> list[str]:
    (top / "b" / "03.png").rename(top / "a" / "03.png")
    return ["a/03.png"]


def remove(top: Path) -> list[str]:
    (top / "b" / "03.png").unlink()
    return []


def remove_class(top: Path) -> list[str]:
    for path in (top / "a").iterdir():
        path.unlink()
    return []


@pytest.mark.parametrize("deed", [add, change, touch, same_size_and_name, rename, remove, remove_class])
def test_only_what_changed_is_read_again(top: Path, scanned: list[str], deed) -> None:  # type: ignore[no-untyped-def]
    read(top)
    scanned.clear()
    changed = deed(top)
    again = read(top)
    assert scanned == changed
    assert again.fingerprint == fresh(top)


@pytest.mark.parametrize("settings", [{"image_size": 9}, {"fit": "pad"}, {"background": "black"}, {"filter": "lanczos"},
                                      {"channels": 1}, {"random_crop": 0.5}])  # fmt: skip
def test_another_transform_is_another_cache(top: Path, scanned: list[str], settings: dict[str, object]) -> None:
    read(top)
    read(top, **settings)
    assert len(scanned) == 24
    read(top)
    assert len(scanned) == 24, "the first one is still there"


def test_what_does_not_make_pixels_leaves_the_cache_alone(top: Path, scanned: list[str]) -> None:
    read(top)
    read(top, flip=True, held_out=0.3, workers=4, max_bad=0.5, jitter=0.1, scan_workers=3)
    assert len(scanned) == 12


def test_colour_that_comes_late_widens_the_set(top: Path) -> None:
    for path in top.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    grey = read(top)
    assert grey.pixels.shape[3] == 1
    photograph(20, 20).save(top / "b" / "zz.png")
    colour = read(top)
    assert colour.pixels.shape[3] == 3
    assert colour.fingerprint == fresh(top)
    assert np.array_equal(colour.pixels[:6, :, :, 2], grey.pixels[:6, :, :, 0])
    (top / "b" / "zz.png").unlink()
    assert read(top).fingerprint == grey.fingerprint == fresh(top)


@pytest.mark.parametrize("file", [cache.PIXELS, cache.LABELS, cache.MANIFEST])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_one_changed_bit_is_found_and_repaired(top: Path, file: str, share: float, scanned: list[str]) -> None:
    images = read(top)
    before = images.fingerprint
    folder = folders(top)[0]
    flip_byte(folder / file, int((folder / file).stat().st_size * share))
    scanned.clear()
    again = read(top)
    assert len(scanned) == 12
    assert again.fingerprint == before
    assert len(folders(top)) == 1


@pytest.mark.parametrize("file", [cache.PIXELS, cache.LABELS, cache.ROWS, cache.NAMES, cache.MANIFEST])
def test_a_cut_or_missing_file_is_made_again(top: Path, file: str) -> None:
    before = read(top).fingerprint
    path = folders(top)[0] / file
    path.write_bytes(path.read_bytes()[:-1])
    assert read(top).fingerprint == before
    path.unlink()
    assert read(top).fingerprint == before


def test_a_build_that_dies_leaves_nothing_that_is_believed(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "seal", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        read(top)
    assert not list((top.parent / "cache").glob("*px*/"))
    left = top.parent / "cache" / f".tmp-set-8px-{prepare._slot(Data(source=str(top), image_size=8))[:12]}-dead-1"
    left.mkdir()
    monkeypatch.undo()
    read(top)
    assert not left.exists(), "what a killed process left behind is swept up"


def test_a_full_disk_is_reported_before_the_work(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache.DISK, "free", lambda folder: 100, raising=False)
    with pytest.raises(DataError, match=r"would take .* GB, but .* free.*data.cache=DIR"):
        read(top)


def test_a_file_that_was_locked_is_read_when_it_no_longer_is(top: Path, scanned: list[str]) -> None:
    target = top / "a" / "00.png"
    content = target.read_bytes()
    status = target.stat()
    target.unlink()
    target.symlink_to(target)  # stands for one without permission, which root has everywhere
    before = read(top)
    assert [name for name, _ in before.rejected] == ["a/00.png"]
    target.unlink()
    target.write_bytes(content)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert len(read(top)) == 12


def test_old_states_go_after_a_week(top: Path) -> None:
    read(top)
    first = folders(top)[0]
    add(top)
    read(top)
    assert len(folders(top)) == 2
    old = time.time() - 8 * 86_400
    os.utime(first / cache.MANIFEST, (old, old))
    change(top)
    read(top)
    assert first not in folders(top)


def test_a_cache_folder_that_cannot_be_used(top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cache folder .*file/x cannot be used.*data.cache=DIR"):
        open_images(Data(source=str(top), image_size=8, cache=str(tmp_path / "file" / "x")))
    monkeypatch.delenv("SAFELIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    said: list[str] = []
    images = open_images(Data(source=str(top), image_size=8), say=said.append)
    assert len(images) == 12
    assert "for this run only" in said[0]


def test_what_was_left_out_for_its_limits_waits_for_larger_ones(top: Path, scanned: list[str]) -> None:
    Image.new("RGB", (3_000, 3_000)).save(top / "a" / "large.png", compress_level=1)
    before = read(top, max_memory=20.0)
    assert [name for name, _ in before.rejected] == ["a/large.png"]
    scanned.clear()
    read(top, max_memory=20.0)
    assert scanned == [], "the same limits, the same end: not tried again"
    assert len(read(top, max_memory=2000.0)) == 13


def flip_byte(path: Path, place: int) -> None:
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def test_damage_after_opening_is_found_when_read(top: Path) -> None:
    for number in range(200):
        photograph(8, 8).save(top / "a" / f"x{number:03}.png")
    images = read(top)
    each = images.pixels[0].size
    checked = np.flatnonzero(images._checked)
    row = next(row for row in range(len(images)) if row not in checked)
    flip_byte(folders(top)[0] / cache.PIXELS, row * each + 5)
    images.take(np.arange(row))
    with pytest.raises(DataError, match=f"Image {row} .*its checksum differs"):
        images.take(np.arange(row + 2))


def test_a_user_without_a_home_has_a_cache_for_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "SAFELIGHT_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda _: {}["no such user"])
    said: list[str] = []
    root = cache.cache_root(Data(), said.append)
    assert root.is_dir()
    assert "no home folder" in said[0]
