"""A source that is a word, or nothing at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from image_sets import read_set

from safelight.errors import DataError


@pytest.mark.parametrize(
    ("source", "meant"),
    [
        ("digts", "'digits'"),
        ("fashion_mnist", "'fashion-mnist'"),
        ("./fotos", "'./photos'"),
        ("photo", "'photos'"),
    ],
)
def test_a_mistyped_source_is_answered_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, meant: str
) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=f"Did you mean {meant}\\?") as error:
        read_set(source)
    assert error.value.exit_code == 3


@pytest.mark.parametrize("source", ["", "/no/such/place", "x" * 5000, "a\0b"])
def test_a_source_that_is_nothing_is_refused(source: str) -> None:
    with pytest.raises(DataError, match="Give a known set, a folder of images, a zip of one, or an idx file"):
        read_set(source)
