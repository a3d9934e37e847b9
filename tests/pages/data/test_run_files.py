"""Files of a foreign run folder are read only if they are plain, small and really inside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from safelight.pages.data.run_files import LARGEST_JSON, plain_file_inside, read_bytes, read_json


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.json").write_text('{"a": 1}')
    (folder / "good.json").write_text('{"a": 1}')
    (folder / "near.json").symlink_to("good.json")  # near miss: a link that stays inside
    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "list.json").write_text("[1]")
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "words.json").write_text("{words")
    (folder / "huge.json").write_text('{"a": "' + "x" * LARGEST_JSON + '"}')
    os.mkfifo(folder / "pipe.json")
    return folder


@pytest.mark.parametrize(
    ("name", "plain", "content"),
    [
        ("good.json", True, {"a": 1}),
        ("near.json", True, {"a": 1}),
        ("link.json", False, {}),
        ("../secret.json", False, {}),
        ("loop.json", False, {}),
        ("none.json", False, {}),
        ("a\0b", False, {}),
        ("sub", False, {}),
        ("pipe.json", False, {}),
        ("list.json", True, {}),
        ("deep.json", True, {}),
        ("words.json", True, {}),
        ("huge.json", True, {}),
    ],
)
def test_what_is_read(run: Path, name: str, plain: bool, content: dict) -> None:
    assert (plain_file_inside(run, name) is not None) == plain
    assert read_json(run, name) == content


def test_a_file_is_read_whole_or_not_at_all(run: Path) -> None:
    assert read_bytes(run / "good.json", 8) == b'{"a": 1}'
    assert read_bytes(run / "good.json", 7) is None
    assert read_bytes(run / "pipe.json", 8) is None
