"""From a pile to images: exactly the broken files are left out, and nothing but the content decides the bytes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_sets import PATIENCE, batch_bytes, data_of, names_of, picture, read_set
from oddities import photograph

from safelight.data import cache
from safelight.data.images import Images
from safelight.data.prepare import open_images, prepare
from safelight.errors import DataError


def test_exactly_the_broken_files_are_left_out(pile: tuple[Path, set[str], set[str]], tmp_path: Path) -> None:
    top, good, broken = pile
    images = open_images(data_of(top, tmp_path))
    assert set(names_of(images)) == good
    assert {name for name, _ in images.rejected} == broken
    assert len(broken) / (len(good) + len(broken)) == pytest.approx(0.1, abs=0.005)
    assert all(reason.startswith(("it ", "decoding it")) for _, reason in images.rejected)
    assert images.class_names == ("birds of a feather", "cats", "dogs", "ünïcødé")
    assert images.pixels.shape == (len(good), 16, 16, 3)


def test_the_number_of_processes_does_not_show(pile: tuple[Path, set[str], set[str]], tmp_path: Path) -> None:
    one = open_images(data_of(pile[0], tmp_path / "1", scan_workers=1))
    four = open_images(data_of(pile[0], tmp_path / "4", scan_workers=4))
    assert one.fingerprint == four.fingerprint
    assert np.array_equal(one.pixels, four.pixels)
    assert list(one.rejected) == list(four.rejected)
    assert one.facts == four.facts
    assert batch_bytes(one) == batch_bytes(four)


def test_too_many_bad_files_end_with_the_list(tmp_path: Path) -> None:
    top = tmp_path / "set"
    top.mkdir()
    for number in range(12):
        (top / f"{number:02}.png").write_bytes(b"bad")
    photograph(16, 16).save(top / "good.png")
    data = data_of(top, tmp_path / "cache")
    with pytest.raises(DataError, match=r"12 of 13 files.*92\.3%.*data.max_bad allows 20\.0%") as error:
        open_images(data)
    assert error.value.exit_code == 3
    assert "00.png: it is no PNG" in str(error.value)
    assert "safelight data" in str(error.value)
    assert len(prepare(data)) == 1, "it can still be looked at"


def test_two_processes_prepare_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "set"
    top.mkdir()
    for number in range(30):
        photograph(16, 16).save(top / f"{number:02}.png")
    built, said, second = list[str](), list[str](), threading.Event()

    def seal(*given: Any) -> None:
        """The one that builds is not done before the other has found it at work, or builds as well."""
        built.append("x")
        if len(built) == 2:
            second.set()
        assert second.wait(PATIENCE)
        write(*given)

    def say(text: str) -> None:
        said.append(text)
        second.set()

    write = cache.seal
    monkeypatch.setattr(cache, "seal", seal)

    def read(_: int) -> Images:
        try:
            return open_images(data_of(top, tmp_path / "cache"), say=say)
        finally:
            second.set()  # also where it failed: nobody waits for it then

    with ThreadPoolExecutor(2) as both:
        found = list(both.map(read, range(2)))
    assert found[0].fingerprint == found[1].fingerprint
    assert built == ["x"]
    assert said == ["Another process is preparing these images; waiting for it."]


def test_threads_that_prepare_ahead_do_not_show(pile: tuple[Path, set[str], set[str]], tmp_path: Path) -> None:
    from safelight.config.resolve import resolve
    from safelight.training.batch_loader import BatchLoader
    from safelight.training.build import infer_data_settings, make_batches

    settings = {"data.flip": True, "data.random_crop": 0.25, "data.jitter": 0.2, "data.balance": True}
    config = resolve(
        preset="digits", settings=settings | {"train.batch_size": 8, "data.max_bad": 0.2, "train.accumulate": 2}
    )
    data = replace(config.data, source=str(pile[0]), image_size=16, cache=str(tmp_path))
    images = open_images(data)
    config = infer_data_settings(replace(config, data=data), images)
    seen = {}
    for workers in (0, 1, 4):
        given = replace(config, data=replace(config.data, workers=workers))
        feed = BatchLoader(given, make_batches(given, images, None))
        micros = [micro for step in range(20) for micro in feed.load(step)]
        feed.close()
        seen[workers] = b"".join(t.numpy().tobytes() for m in micros for t in (m.x0, m.noise, m.t))
    assert seen[0] == seen[1] == seen[4]


def test_too_many_bad_files_end_it_with_their_names(tmp_path: Path) -> None:
    for index in range(10):
        picture(tmp_path / f"{index}.png", index)
        (tmp_path / f"{index}.jpg").touch()
    with pytest.raises(DataError) as error:
        read_set(tmp_path)
    words = str(error.value)
    assert "10 of 20 files" in words
    assert "(50.0%); data.max_bad allows 10.0%" in words
    assert "4.jpg: it is empty (0 bytes)" in words
    assert "5.jpg" not in words
    assert "and 5 more" in words
    assert len(read_set(tmp_path, max_bad=0.5).pixels) == 10


def test_nothing_but_bad_files_is_refused_at_any_share(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    with pytest.raises(DataError, match="none is left to train on"):
        read_set(tmp_path, max_bad=1.0)
