"""Nothing below a root is reached over a link, and nothing outside of it is touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from safelight.errors import CheckpointError
from safelight.files import Disk, make_directories, read_plain, remove_tree, temporary_name, write_atomically
from safelight.files.disk import LinkInside


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A root that is a link itself, with a folder inside that is one to somebody else's."""
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "real" / "inner" / "file").write_bytes(b"ours")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_bytes(b"theirs")
    (tmp_path / "real" / "linked").symlink_to(tmp_path / "other")
    (tmp_path / "run").symlink_to("real")
    return tmp_path / "run"


DEEDS: dict[str, Callable[[Path, Disk], object]] = {
    "write": lambda folder, disk: write_atomically(folder / "file", b"new", disk),
    "create": lambda folder, disk: os.close(disk.create(folder / "new")),
    "rename": lambda folder, disk: disk.rename(folder / "file", folder / "moved"),
    "unlink": lambda folder, disk: disk.unlink(folder / "file"),
    "make a folder": lambda folder, disk: make_directories(folder / "deep" / "er", disk),
    "remove all": lambda folder, disk: remove_tree(folder / "file", disk),
    "flush": lambda folder, disk: disk.sync_directory(folder),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_a_linked_folder_below_the_root_is_refused(run: Path, deed: str) -> None:
    disk, other = Disk(run), run.parent / "other"
    DEEDS[deed](run / "inner", disk)
    with pytest.raises(LinkInside, match="linked is a symbolic link, and nothing inside"):
        DEEDS[deed](run / "linked", disk)
    assert [path.name for path in other.iterdir()] == ["file"]
    assert (other / "file").read_bytes() == b"theirs"


@pytest.mark.parametrize("deed", [deed for deed in DEEDS if deed != "flush"])
def test_nothing_outside_the_root_is_touched(run: Path, deed: str) -> None:
    for place in (run.parent / "other", run / ".." / "other", run / "inner" / ".." / ".." / "other"):
        with pytest.raises(OSError, match="outside"):
            DEEDS[deed](place, Disk(run))
    assert [path.name for path in (run.parent / "other").iterdir()] == ["file"]


def test_reading_refuses_a_linked_folder(run: Path) -> None:
    assert read_plain(run / "inner" / "file", 10, Disk(run)) == b"ours"
    with pytest.raises(CheckpointError, match="linked is a symbolic link"):
        read_plain(run / "linked" / "file", 10, Disk(run))


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_link_in_the_place_of_a_file_is_replaced(run: Path, link: Callable[[Path, Path], None]) -> None:
    victim = run.parent / "other" / "file"
    link(run / "run.json", victim)
    write_atomically(run / "run.json", b"new", Disk(run))
    assert victim.read_bytes() == b"theirs"
    assert (run / "run.json").read_bytes() == b"new"


def test_a_root_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make_directories(tmp_path / "gone" / "checkpoints", Disk(tmp_path / "gone"))
    assert not (tmp_path / "gone").exists()


def test_relative_and_absolute_names_of_one_root(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    write_atomically(run / "file", b"1", Disk(Path("run")))
    write_atomically(Path("run/file"), b"2", Disk(run))
    assert (run / "file").read_bytes() == b"2"


def test_temporary_names_are_new_and_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {temporary_name(tmp_path / "run.json").name for _ in range(100)}
    assert len(names) == 100
    (tmp_path / "victim").write_bytes(b"old")
    for link in (Path.symlink_to, Path.hardlink_to):
        (known := tmp_path / ".tmp-known").unlink(missing_ok=True)
        link(known, tmp_path / "victim")
        monkeypatch.setattr("safelight.files.writing.temporary_name", lambda path: path.with_name(".tmp-known"))
        with pytest.raises(FileExistsError):
            write_atomically(tmp_path / "run.json", b"new")
        assert (tmp_path / "victim").read_bytes() == b"old"
