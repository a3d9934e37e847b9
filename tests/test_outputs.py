"""What every output does where the target is missing, ours, somebody else's, a folder, a link or a device."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from safelight.errors import UsageError
from safelight.outputs import check_output_folder, open_output, write_output


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "mine"
    for name in ("checkpoints/step_00000004/model.safetensors", "samples/step_00000004.png", "config.yaml", "run.json",
                 "record.sqlite", "record.sqlite-wal", "report.html", "lock", "notes.txt"):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"old")
    return folder


@pytest.mark.parametrize(
    "name",
    ["config.yaml", "run.json", "record.sqlite", "record.sqlite-wal", "lock", "report.html", "Config.YAML",
     "model.json", "checkpoints/step_00000004/model.safetensors", "checkpoints/new", "samples/step_00000004.png",
     "ema/x/y"],
)  # fmt: skip
def test_a_file_of_a_run_is_not_replaced(run: Path, name: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run / name)
    for target in (run / name, run / "samples" / ".." / name, tmp_path / "link"):
        with pytest.raises(UsageError, match=r"is a file of the run|is not a directory"):
            write_output(target, b"new")
    assert {path.read_bytes() for path in run.rglob("*") if path.is_file()} == {b"old"}


@pytest.mark.parametrize("name", ["mine.csv", "notes.txt", "samples/mine.png"])
def test_other_files_in_a_run_are_the_users(run: Path, name: str) -> None:
    write_output(run / name, b"new")
    assert (run / name).read_bytes() == b"new"


def test_an_output_may_replace_itself(run: Path) -> None:
    write_output(run / "report.html", b"new", of_run="report.html")
    assert (run / "report.html").read_bytes() == b"new"


def test_a_link_that_came_with_a_run_is_not_followed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"old")
    (run / "mine.csv").symlink_to(tmp_path / "victim")
    (run / "pictures").symlink_to(tmp_path)
    for target in (run / "mine.csv", run / "pictures" / "victim"):
        with pytest.raises(UsageError, match="symbolic link inside a run folder"):
            write_output(target, b"new")
    assert (tmp_path / "victim").read_bytes() == b"old"


def test_a_link_of_the_users_leads_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_output(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_new_file_is_made_and_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory"):
        write_output(tmp_path / "a" / "b.csv", b"new")
    (tmp_path / "a").mkdir()
    write_output(tmp_path / "a" / "b.csv", b"new")
    with pytest.raises(UsageError, match="is a folder"):
        write_output(tmp_path / "a", b"new")
    assert (tmp_path / "a" / "b.csv").read_bytes() == b"new"


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="nobody reads from"):
        write_output(pipe, b"new")
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_output(pipe, b"new")
    assert os.read(descriptor, 100) == b"new"
    os.close(descriptor)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_pipe_without_a_name_is_written_to(run: Path) -> None:
    """As /dev/stdout, /dev/fd/N and the >(command) of a shell are."""
    reader, writer = os.pipe()
    write_output(Path(f"/proc/self/fd/{writer}"), b"new")
    assert os.read(reader, 100) == b"new"
    for end in (reader, writer):
        os.close(end)


def test_what_a_command_reads_is_not_replaced(run: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    (images / "cats").mkdir(parents=True)
    for name in ("cats/1.png", "set.zip"):
        (images / name).write_bytes(b"old")
    (tmp_path / "again").symlink_to(images)
    for target, source in (("cats/1.png", images), ("set.zip", images / "set.zip"), ("cats/1.png", tmp_path / "again")):
        for place in (images / target, tmp_path / "again" / target):
            with pytest.raises(UsageError, match="is what this command reads"):
                write_output(place, b"new", inputs=(None, source))
        assert (images / target).read_bytes() == b"old"
    write_output(images / "sheet.png", b"new", inputs=(images,))  # nothing is lost
    write_output(run / "notes.txt", b"new", inputs=(run,))


@pytest.mark.parametrize("name", ["a" * 255, "\u3042" * 85, "\U0001d49c" * 63], ids=["letters", "three bytes", "four"])
def test_a_name_may_be_as_long_as_the_disk_allows(tmp_path: Path, name: str) -> None:
    write_output(tmp_path / name, b"new")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [(name, b"new")]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_what_ends_early_leaves_the_old_one_alone(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(b"old")

    def fail() -> None:
        with open_output(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises((error, UsageError)):
        fail()
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("report.html", b"old")]


def test_a_folder_of_results_is_not_a_run(run: Path, tmp_path: Path) -> None:
    for place in (run, run / "checkpoints", run / "samples" / "deep"):
        with pytest.raises(UsageError, match="belongs to the run"):
            check_output_folder(place)
    with pytest.raises(UsageError, match="it is a file"):
        check_output_folder(run / "notes.txt")
    assert check_output_folder(tmp_path / "new") == tmp_path / "new"
    assert check_output_folder(run / "pipeline") == run / "pipeline"
