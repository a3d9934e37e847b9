"""Decoding in processes of their own: whatever happens to them, every file has an image or a reason."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from image_sets import batch_bytes, data_of
from oddities import bomb, photograph
from PIL import Image

from safelight.config.tree import Data
from safelight.data import scan
from safelight.data.prepare import open_images
from safelight.errors import DataError
from torture.scenarios.dirt import noisy_fax


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


def test_processes_that_cannot_start_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photograph(16, 16).save(tmp_path / "a.png")
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(DataError, match="die as soon as they start"):
        open_images(data_of(tmp_path, tmp_path / "cache"))
    assert not list((tmp_path / "cache").glob("*px*/manifest.json"))


def test_a_decoder_that_complains_without_end_is_not_stopped_by_it(tmp_path: Path) -> None:
    """libtiff has a line for each row of a damaged fax: unread, they fill the pipe and the process waits in vain."""
    (tmp_path / "fax.tif").write_bytes(noisy_fax(rows=25_000))  # 1.4 MB of words
    data = Data(image_size=8, source=str(tmp_path), max_pixels=2_000_000, scan_workers=1, max_seconds=300)
    found = list(scan.scan(["fax.tif"], data))
    assert [each.reason for each in found] == [""]
