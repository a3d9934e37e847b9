from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from safelight.errors import CheckpointError
from safelight.files import open_mapped, read_json, read_tensor_file
from safelight.files.reading import read_anything


def test_json_is_read_or_none(tmp_path: Path) -> None:
    for name, content in {"good": b'{"a": 1}', "cut": b'{"a"', "deep": b"[" * 200_000}.items():
        (tmp_path / name).write_bytes(content)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("good")
    found = {name: read_json(tmp_path / name) for name in ("good", "cut", "deep", "pipe", "folder", "link", "missing")}
    assert found == {"good": {"a": 1}} | dict.fromkeys(("cut", "deep", "pipe", "folder", "link", "missing"))
    assert read_json(tmp_path / "good", most=3) is None


def test_a_mapped_file_has_the_size_it_should(tmp_path: Path) -> None:
    path, kind = tmp_path / "pixels", np.dtype(np.uint8)
    path.write_bytes(bytes(range(12)))
    assert open_mapped(path, kind, (3, 4)).tolist()[2] == [8, 9, 10, 11]
    with pytest.raises(CheckpointError, match="12 bytes"):
        open_mapped(path, kind, (3, 5))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        open_mapped(tmp_path / "pipe", kind, (3, 4))
    (tmp_path / "empty").touch()
    assert open_mapped(tmp_path / "empty", kind, (0, 4)).shape == (0, 4)


def test_a_tensor_file_with_its_words(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(save({"a": np.ones(3, np.float32)}, {"check": "x"}))
    raw, words = read_tensor_file(path, 1000)
    assert (raw, words) == (path.read_bytes(), {"check": "x"})
    path.write_bytes(b"\0" * 8 + b"[1]")
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        read_tensor_file(path, 1000)


def test_what_a_user_names_may_be_a_link_or_a_pipe_and_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safelight.files.reading.PATIENCE", 0.01)
    (tmp_path / "file").write_bytes(b"words" * 10)
    (tmp_path / "link").symlink_to("file")
    assert read_anything(tmp_path / "link", 7) == b"wordswo"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="nothing came from it"):
        read_anything(tmp_path / "pipe", 7)
    ends = os.pipe()
    os.write(ends[1], b"words")
    os.close(ends[1])
    assert read_anything(Path(f"/dev/fd/{ends[0]}"), 100) == b"words"  # as `<(command)` is given
    os.close(ends[0])
    with pytest.raises(FileNotFoundError):
        read_anything(tmp_path / "nothing", 7)
