"""From a pile to images: exactly the broken files are left out, and nothing but the content decides the bytes."""

from __future__ import annotations

import textwrap
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oddities import bomb, make_broken, make_good, photograph
from PIL import Image

from safelight.config.tree import Data
from safelight.data import cache, scan
from safelight.data.batches import Batches, Views
from safelight.data.images import Images
from safelight.data.prepare import open_images, prepare
from safelight.errors import DataError

PATIENCE = 300.0  # seconds: ends a test that hangs, and no other


@pytest.fixture(scope="module")
def pile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str], set[str]]:
    top = tmp_path_factory.mktemp("pile")
    good = make_good(top)
    return top, good, make_broken(top)


def data_of(source: Path | str, cache_folder: Path, **settings: object) -> Data:
    given = {"image_size": 16, "max_bad": 0.2, "max_seconds": PATIENCE} | settings
    return Data(source=str(source), cache=str(cache_folder), **given)  # type: ignore[arg-type]


def names(images: Images) -> set[str]:
    assert images.names is not None
    return {images.names[row] for row in range(len(images))}


def batch_bytes(images: Images, steps: int = 12) -> bytes:
    views = Views(flip=True, side=14, jitter=0.2)
    batches = Batches(images, seed=3, batch_size=16, views=views, balance=True)
    return b"".join(batches.rows(step, 0, 16).images.numpy().tobytes() for step in range(steps))


def test_exactly_the_broken_files_are_left_out(pile: tuple[Path, set[str], set[str]], tmp_path: Path) -> None:
    top, good, broken = pile
    images = open_images(data_of(top, tmp_path))
    assert names(images) == good
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


def haunt(monkeypatch: pytest.MonkeyPatch, site: Path, deeds: str) -> None:
    """Has every decoder do `deeds`, in Python, when it opens a file: `name` is the file's, `first` whether none did."""
    site.mkdir()
    # Imported by every Python that starts.
    (site / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "def look(event, arguments):\n"
        "    if event != 'open' or not isinstance(arguments[0], str): return\n"
        "    name = os.path.basename(arguments[0])\n"
        "    if not name.endswith(('.png', '.jpg')): return\n"
        f"    opened = os.path.join({str(site)!r}, name + ' was opened')\n"
        "    first = not os.path.exists(opened)\n"
        "    with open(opened, 'a') as file: file.write('x')\n"
        + textwrap.indent(textwrap.dedent(deeds), "    ")
        + "if 'safelight.data.worker' in ' '.join(sys.orig_argv): sys.addaudithook(look)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(site))


def test_a_killed_process_changes_nothing(
    pile: tuple[Path, set[str], set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times, each in the middle of its work: a process that has handed in everything would not be missed."""
    whole = open_images(data_of(pile[0], tmp_path / "whole"))
    haunt(
        monkeypatch,
        tmp_path / "site",
        """
        if first and name in ("00.jpg", "20.jpg", "50.jpg", "70.jpg"):
            if name == "50.jpg": os.write(1, b"i" + bytes([200, 0, 0, 0]) + bytes(20))  # the beginning of an answer
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    started: list[scan._Worker] = []
    start = scan._Pool._start
    monkeypatch.setattr(scan._Pool, "_start", lambda pool: started.append(start(pool)) or started[-1])
    again = open_images(data_of(pile[0], tmp_path / "killed", scan_workers=2))
    assert len(started) == 2 + 4, "each that was killed was replaced, and no other"
    assert again.fingerprint == whole.fingerprint
    assert list(again.rejected) == list(whole.rejected)
    assert batch_bytes(again) == batch_bytes(whole)


def test_a_file_that_kills_or_stops_its_decoder_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files bring a decoder down, and somebody kills it three times at another, which is not to blame."""
    top, site = tmp_path / "set", tmp_path / "site"
    top.mkdir()
    for number in range(20):
        photograph(20, 20).save(top / f"{number:02}.png")
    (top / "05.png").write_bytes(b"KILL")
    (top / "11.png").write_bytes(b"HANG")
    haunt(
        monkeypatch,
        site,
        f"""
        if name == "05.png": os.kill(os.getpid(), signal.SIGSEGV)
        if name == "07.png" and os.path.getsize(opened) <= 3: os.kill(os.getpid(), signal.SIGKILL)
        if name == "11.png":
            open({str(site / "hangs")!r}, "w").close()
            while True: signal.pause()
        """,
    )
    clock = HungClock(site / "hangs")
    monkeypatch.setattr(scan, "time", clock)
    stop = scan._Worker.stop
    monkeypatch.setattr(scan._Worker, "stop", lambda worker: (clock.hangs.unlink(missing_ok=True), stop(worker))[1])
    images = open_images(data_of(top, tmp_path / "cache", max_seconds=1.0, scan_workers=1))
    reasons = dict(images.rejected)
    assert len(images) == 18
    assert reasons.keys() == {"05.png", "11.png"}
    assert "the decoder crashed at it" in reasons["05.png"]
    assert "longer than data.max_seconds allows (1 s)" in reasons["11.png"]


class HungClock:
    """The time for which a decoder hangs: it stands still while all go on, however busy the machine is."""

    def __init__(self, hangs: Path) -> None:
        self.hangs = hangs  # exists while one hangs
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 2.0 * self.hangs.exists()
        return self._now


def test_memory_size_and_pixels_are_limited(tmp_path: Path) -> None:
    top = tmp_path / "set"
    top.mkdir()
    for number in range(6):
        photograph(20, 20).save(top / f"{number}.png")
    (top / "bomb.png").write_bytes(bomb(20_000, 20_000))
    Image.new("RGB", (5_000, 5_000)).save(top / "large.png", compress_level=1)
    (top / "long.png").write_bytes((top / "0.png").read_bytes() + b"\0" * 2_000_000)
    images = open_images(data_of(top, tmp_path / "cache", max_bad=0.5, max_memory=40.0, max_megabytes=1.0))
    reasons = dict(images.rejected)
    assert reasons.keys() == {"bomb.png", "large.png", "long.png"}
    assert "data.max_pixels" in reasons["bomb.png"]
    assert "data.max_memory" in reasons["large.png"]
    assert "data.max_megabytes allows (1 MB)" in reasons["long.png"]


def test_a_zip_gives_the_images_of_its_folder(pile: tuple[Path, set[str], set[str]], tmp_path: Path) -> None:
    top, good, broken = pile
    with zipfile.ZipFile(tmp_path / "pile.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(top.rglob("*"), reverse=True):
            if path.is_file():
                archive.write(path, f"pile/{path.relative_to(top)}")
        archive.writestr("__MACOSX/pile/._x.jpg", b"fork")
    packed, folder = (open_images(data_of(source, tmp_path / "c")) for source in (tmp_path / "pile.zip", top))
    assert packed.fingerprint == folder.fingerprint
    assert packed.class_names == folder.class_names
    assert names(packed) == {f"pile/{name}" for name in good}
    assert {name for name, _ in packed.rejected} == {f"pile/{name}" for name in broken - {"dogs/broken link.png"}}


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"PK\x03\x04 not a zip", "is no zip that can be read"), (b"", "is no zip that can be read")],
)
def test_a_broken_zip_is_refused_in_words(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(DataError, match=words):
        open_images(data_of(tmp_path / "a.zip", tmp_path / "cache"))


def test_members_that_cannot_be_unpacked_are_left_out(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in range(9):
            photograph(16, 16).save(tmp_path / "x.png")
            archive.write(tmp_path / "x.png", f"{number}.png")
    content = bytearray((tmp_path / "a.zip").read_bytes())
    content[200] ^= 0xFF  # inside the first member
    (tmp_path / "a.zip").write_bytes(content)
    images = open_images(data_of(tmp_path / "a.zip", tmp_path / "cache"))
    assert [name for name, _ in images.rejected] == ["0.png"]
    assert "Bad CRC-32" in images.rejected[0][1]


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


def test_processes_that_cannot_start_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photograph(16, 16).save(tmp_path / "a.png")
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(DataError, match="die as soon as they start"):
        open_images(data_of(tmp_path, tmp_path / "cache"))
    assert not list((tmp_path / "cache").glob("*px*/manifest.json"))


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
    from safelight.training.build import fit_to_data, make_batches

    settings = {"data.flip": True, "data.random_crop": 0.25, "data.jitter": 0.2, "data.balance": True}
    config = resolve(
        preset="digits", settings=settings | {"train.batch_size": 8, "data.max_bad": 0.2, "train.accumulate": 2}
    )
    data = replace(config.data, source=str(pile[0]), image_size=16, cache=str(tmp_path))
    images = open_images(data)
    config = fit_to_data(replace(config, data=data), images)
    seen = {}
    for workers in (0, 1, 4):
        given = replace(config, data=replace(config.data, workers=workers))
        feed = BatchLoader(given, make_batches(given, images))
        micros = [micro for step in range(20) for micro in feed.load(step)]
        feed.close()
        seen[workers] = b"".join(t.numpy().tobytes() for m in micros for t in (m.x0, m.noise, m.t))
    assert seen[0] == seen[1] == seen[4]
