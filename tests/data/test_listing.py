"""The list of a source's files: sorted by bytes, with the row that an earlier cache has of each."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from safelight.data.listing import Listing, Names, digest
from safelight.data.sources import SourceFile

FILES = [
    SourceFile("b/2.png", 20, 2, "b"),
    SourceFile("a/caf\udce9.png", 10, 1, "a"),  # no text
    SourceFile("a/1.png", 30, 3, "a"),
    SourceFile("loose.png", 40, 4, None),
]


def write(path: Path, files: list[SourceFile]) -> Path:
    """As a cache does: every file but the last is kept, in order, and the last is rejected."""
    with closing(Listing(path)) as listing:
        listing.fill(files)
        *kept, last = [entry for entry, _ in listing.entries()]
        for row, entry in enumerate(kept):
            listing.keep(row, entry)
        listing.reject(last.name, "it is empty", "any time")
        listing.commit()
    return path


def test_entries_come_sorted_by_their_bytes_and_whole(tmp_path: Path) -> None:
    with closing(Listing(tmp_path / "names")) as listing:
        assert listing.fill(FILES) == 4
        assert [entry for entry, _ in listing.entries()] == [FILES[2], FILES[1], FILES[0], FILES[3]]
        assert {row for _, row in listing.entries()} == {None}
        assert listing.labels() == ["a", "b"]


def test_of_a_name_that_comes_twice_the_last_counts(tmp_path: Path) -> None:
    with closing(Listing(tmp_path / "names")) as listing:
        assert listing.fill([FILES[0], replace(FILES[0], size=21)]) == 1
        assert [entry.size for entry, _ in listing.entries()] == [21]


def test_names_and_rejected_files_are_found_afterwards(tmp_path: Path) -> None:
    names = Names(write(tmp_path / "names", FILES))
    assert [names[row] for row in range(3)] == ["a/1.png", "a/caf\udce9.png", "b/2.png"]
    assert list(names.rejected()) == [("loose.png", "it is empty", "any time")]
    with pytest.raises(IndexError):
        names[3]


@pytest.mark.parametrize(
    ("change", "new"),
    [
        ({}, ["loose.png"]),  # it was rejected then
        ({"label": "other"}, ["loose.png"]),
        ({"size": 31}, ["a/1.png", "loose.png"]),
        ({"modified": 9}, ["a/1.png", "loose.png"]),
        ({"name": "a/0.png"}, ["a/0.png", "loose.png"]),
    ],
)
def test_what_an_earlier_cache_has_is_not_new(tmp_path: Path, change: dict, new: list[str]) -> None:
    earlier = write(tmp_path / "earlier ?%#", FILES)
    files = [replace(FILES[2], **change), *FILES[:2], FILES[3]]
    with closing(Listing(tmp_path / "names", earlier)) as listing:
        listing.fill(files)
        assert list(listing.new_names()) == new
        rows = {entry.name: row for entry, row in listing.entries()}
    assert [name for name in sorted(rows) if rows[name] is None] == new
    assert (rows["a/caf\udce9.png"], rows["b/2.png"]) == (1, 2)


def test_files_can_be_kept_while_both_lists_are_read(tmp_path: Path) -> None:
    """As `prepare` does, which keeps neither of them in memory."""
    with closing(Listing(tmp_path / "names")) as listing:
        listing.fill(SourceFile(f"{number:05}.png", 1, 1, None) for number in range(5000))
        new = listing.new_names()
        for row, (entry, _) in enumerate(listing.entries()):
            assert entry.name == next(new)
            listing.keep(row, entry)
        listing.commit()
    assert Names(tmp_path / "names")[4999] == "04999.png"


def test_the_digest_knows_every_field_and_no_order() -> None:
    same = digest(FILES)
    assert digest(FILES[::-1]) == same
    for change in ({"name": "x"}, {"size": 1}, {"modified": 1}, {"label": "x"}, {"label": None}):
        assert digest([replace(FILES[0], **change), *FILES[1:]]) != same, change
    assert digest([*FILES, FILES[0]]) != same
