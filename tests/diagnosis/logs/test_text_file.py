"""Text in any usual encoding; what is not text ends in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelight.diagnosis.logs.text_file import MAX_LINE_LENGTH, lines_of
from safelight.errors import UsageError


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "log.txt"
    path.write_text("step 1\nloss 2\n", encoding=encoding)
    assert list(lines_of(path)) == ["step 1", "loss 2"]


def test_progress_bars_and_broken_bytes(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"a\rb\r\nc\xff\n")
    assert list(lines_of(path)) == ["a", "b", "c�"]


def test_a_line_without_an_end_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("x" * (3 * MAX_LINE_LENGTH) + "\nnext\n")
    assert [len(line) for line in lines_of(path)] == [MAX_LINE_LENGTH, 4]


@pytest.mark.parametrize(("content", "words"), [(b"", "is empty"), (b"\x00\x01\x02", "is not text")])
def test_what_is_not_text(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        list(lines_of(path))
