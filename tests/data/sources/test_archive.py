"""Zips of images: as the folder they were made of, and every kind of damage."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from image_sets import data_of, names_of
from oddities import photograph

from safelight.data.prepare import open_images
from safelight.errors import DataError


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
    assert set(names_of(packed)) == {f"pile/{name}" for name in good}
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
