"""Whoever forges a checkpoint can also make every sha256 right."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from attacks import ATTACKS
from moments import NAN, QUICK, assert_equal, save, snapshot

from safelight.checkpoints import manifest, reader, tensorfile
from safelight.checkpoints.folder import steps
from safelight.checkpoints.reader import load, load_newest
from safelight.checkpoints.writer import write
from safelight.errors import CheckpointError
from safelight.files import Unreadable
from torture.disks import QuickDisk


def reseal(path: Path, file: str, /, **change: Any) -> None:
    """The manifest of a forger: valid, and with `change` in the entry of one file."""
    body = json.loads((path / manifest.NAME).read_bytes())
    del body["sha256"]
    for entry in body["files"]:
        if entry["name"] == file:
            entry |= change
    (path / manifest.NAME).write_bytes(manifest.seal(body))


def with_body(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    body = json.loads((path / manifest.NAME).read_bytes())
    del body["sha256"]
    change(body)
    (path / manifest.NAME).write_bytes(manifest.seal(body))


def forge(path: Path, name: str, content: bytes) -> None:
    """Other content with the right size and sha256."""
    (path / name).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    reseal(path, name, size=len(content), sha256=digest)


def instead_of_model(path: Path) -> Path:
    model = path / "model.safetensors"
    model.unlink()
    return model


def raw_manifest(content: bytes) -> Callable[[Path], object]:
    return lambda path: (path / manifest.NAME).write_bytes(content)


def entry(**change: Any) -> Callable[[Path], object]:
    return lambda path: reseal(path, "model.safetensors", **change)


def state(content: bytes) -> Callable[[Path], object]:
    return lambda path: forge(path, "state.json", content)


def nan_weights(path: Path) -> None:
    layout = tensorfile.lay_out({"weight": torch.full((3,), NAN)}, "here")
    forge(path, "model.safetensors", b"".join(layout.chunks()))


def linked_manifest(path: Path) -> None:
    (path / manifest.NAME).rename(path / "other.json")
    (path / manifest.NAME).symlink_to("other.json")


def own_link(path: Path) -> None:
    shutil.copy(path / "model.safetensors", path.parent / "elsewhere")
    instead_of_model(path).symlink_to(path.parent / "elsewhere")


FORGERIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "name: absolute": (entry(name="/etc/passwd"), "names the file '/etc/passwd'"),
    "name: parent": (entry(name="../x.safetensors"), "Only state.json and plain"),
    "name: parent, short": (entry(name=".."), "Only state.json and plain"),
    "name: backslash": (entry(name="..\\x.safetensors"), "Only state.json and plain"),
    "name: in a folder": (entry(name="a/b.safetensors"), "Only state.json and plain"),
    "name: NUL": (entry(name="model\0.safetensors"), "Only state.json and plain"),
    "name: new line": (entry(name="model.safetensors\n"), "Only state.json and plain"),
    "name: hidden": (entry(name=".model.safetensors"), "Only state.json and plain"),
    "name: a pickle": (entry(name="model.pt"), "Only state.json and plain"),
    "name: the manifest": (entry(name="manifest.json"), "Only state.json and plain"),
    "name: a number": (entry(name=7), "Only state.json and plain"),
    "name: twice": (entry(name="ema.safetensors"), "every file once"),
    "name: not there": (entry(name="other.safetensors"), "other.safetensors is missing"),
    "name: no state": (lambda path: reseal(path, "state.json", name="x.safetensors"), "must name state.json"),
    "size: NaN": (entry(size=NAN), "size of model.safetensors is nan"),
    "size: true": (entry(size=True), "which cannot be"),
    "size: fraction": (entry(size=1.5), "which cannot be"),
    "size: negative": (entry(size=-1), "which cannot be"),
    "size: 10^4000": (entry(size=10**4000), "which cannot be"),
    "size: other": (entry(size=5), "5 were written"),
    "size: large state": (lambda path: reseal(path, "state.json", size=1 << 40), "which cannot be"),
    "sha256: other": (entry(sha256="0" * 64), "is damaged"),
    "sha256: short": (entry(sha256="0"), "64 hexadecimal"),
    "entry: one field more": (entry(offset=3), "not described by"),
    "entry: text": (lambda path: with_body(path, lambda b: b["files"].append("x")), "not described by"),
    "files: a table": (lambda path: with_body(path, lambda b: b.update(files={})), "no list of files"),
    "files: none": (lambda path: with_body(path, lambda b: b.update(files=[])), "must name state.json"),
    "step: of another folder": (lambda path: with_body(path, lambda b: b.update(step=9)), "is of step 9"),
    "step: text": (lambda path: with_body(path, lambda b: b.update(step="2")), "step is not a number"),
    "format: 0": (lambda path: with_body(path, lambda b: b.update(format=0)), "not a manifest of format 1"),
    "manifest: empty": (raw_manifest(b""), "not valid JSON"),
    "manifest: a list": (raw_manifest(b"[]"), "an object was expected"),
    "manifest: 100,000 deep": (raw_manifest(b"[" * 100_000), "nested too deeply"),
    "manifest: deep objects": (raw_manifest(b'{"a":' * 50_000), "nested too deeply"),
    "manifest: huge integer": (raw_manifest(b'{"step": ' + b"1" * 5000 + b"}"), "not valid JSON"),
    "manifest: not UTF-8": (raw_manifest(b'{"\xff": 1}'), "not valid JSON"),
    "manifest: a key twice": (raw_manifest(b'{"step": 1, "step": 2}'), "comes twice"),
    "manifest: no seal": (raw_manifest(b'{"step": 2}\n'), "its own sha256"),
    "manifest: 17 MB": (raw_manifest(b" " * (17 << 20)), "at most 16,777,216"),
    "manifest: a link": (linked_manifest, "symbolic link"),
    "model: a link": (own_link, "symbolic link"),
    "model: link to /dev/zero": (
        lambda path: instead_of_model(path).symlink_to("/dev/zero"),
        "symbolic link",
    ),
    "model: a pipe": (lambda path: os.mkfifo(instead_of_model(path)), "not a regular file"),
    "model: a folder": (lambda path: instead_of_model(path).mkdir(), "not a regular file"),
    "model: NaN weights": (nan_weights, "holds 3 NaN or Inf among 3"),
    "state: deep": (state(b"[" * 100_000), "nested too deeply"),
    "state: huge integer": (state(b'{"a": ' + b"1" * 5000 + b"}"), "not valid JSON"),
    "state: a list": (state(b"[1]"), "an object was expected"),
    "state: a key twice": (state(b'{"a": 1, "a": 2}'), "comes twice"),
    "state: a pickle": (state(b"\x80\x04K\x01."), "not valid JSON"),
}


def refused_and_fallen_back(folder: Path, words: str) -> None:
    with pytest.raises(CheckpointError, match=words) as caught:
        load(folder / "step_00000002")
    assert not isinstance(caught.value, Unreadable)
    said: list[str] = []
    loaded = load_newest(folder, said.append, disk=QUICK)
    assert loaded is not None
    assert_equal(loaded, snapshot(1))
    assert len(said) == 1
    assert steps(folder) == [1]


@pytest.mark.parametrize(("attack", "words"), FORGERIES.values(), ids=FORGERIES.keys())
def test_forged_checkpoints_are_refused_in_words(tmp_path: Path, attack: Callable[[Path], object], words: str) -> None:
    save(tmp_path, 1, 2)
    attack(tmp_path / "step_00000002")
    refused_and_fallen_back(tmp_path, words)


@pytest.mark.parametrize(("raw", "words"), ATTACKS.values(), ids=ATTACKS.keys())
def test_forged_tensor_files_are_refused_in_words(tmp_path: Path, raw: bytes, words: str) -> None:
    save(tmp_path, 1, 2)
    forge(tmp_path / "step_00000002", "model.safetensors", raw)
    refused_and_fallen_back(tmp_path, words)


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "sprung",)

    save(tmp_path, 1, 2)
    torch.save(Trap(), tmp_path / "trap")
    forge(tmp_path / "step_00000002", "model.safetensors", (tmp_path / "trap").read_bytes())
    refused_and_fallen_back(tmp_path, "is a pickle")
    assert not (tmp_path / "sprung").exists()
    torch.load(tmp_path / "trap", weights_only=False)
    assert (tmp_path / "sprung").exists()  # the trap itself works


def test_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    with_body(tmp_path / "step_00000002", lambda body: body.update(format=3))
    with pytest.raises(Unreadable, match="format 3; this version of safelight reads up to 2"):
        load_newest(tmp_path, pytest.fail)
    assert steps(tmp_path) == [1, 2]


class Swapping(QuickDisk):
    """Puts other content under the name between the check of a file and its reading."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def read(self, descriptor: int, count: int) -> bytes:
        if self.victim.exists() and os.fstat(descriptor).st_ino == self.victim.stat().st_ino:
            other = self.victim.with_name("other")
            other.write_bytes(b"\x80\x04evil")
            other.replace(self.victim)
        return super().read(descriptor, count)


def test_a_file_swapped_between_check_and_load_is_not_seen(tmp_path: Path) -> None:
    path = write(tmp_path, snapshot(1), disk=QUICK)
    assert_equal(load(path, disk=Swapping(path / "model.safetensors")), snapshot(1))
    with pytest.raises(CheckpointError):
        load(path)


def test_more_than_the_memory_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, snapshot(1), disk=QUICK)
    reseal(path, "model.safetensors", size=1 << 42)
    try:
        os.truncate(path / "model.safetensors", 1 << 42)  # a hole: it takes no space
    except OSError as error:
        pytest.skip(f"needs a file system with files of 4 TB, such as ext4 or XFS: {error.strerror}")
    with pytest.raises(Unreadable, match=r"needs 8,796,093\.\d MB of memory"):
        load(path)
    monkeypatch.setattr(reader, "_check_memory", lambda path, entries: None)
    monkeypatch.setattr(manifest, "read_file", lambda *_: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(Unreadable, match="does not fit into memory"):
        load(path)
    assert psutil.virtual_memory().available < 1 << 42
