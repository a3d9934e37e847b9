"""What a command writes where the user said: whole or not at all, and never over a file of a run that is not it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from safelight.errors import UsageError
from safelight.files import Disk, temporary_name
from safelight.run import INNER, RunFolder

OWN_NAMES = ("config.yaml", "run.json", "record.sqlite", "data.json", "model.json", "lock", "report.html",
             "metrics.jsonl", "wandb-id")  # fmt: skip
BESIDE_RECORD = ("-wal", "-shm", "-journal")


def check_output(
    path: Path, flag: str = "-o", *, of_run: str | None = None, inputs: Iterable[Path | None] = ()
) -> Path:
    """Where an output really goes; an error before the work and not after it. `of_run`: the name that this output has
    in a run folder; `inputs`: what the command reads, which it does not replace."""
    if "\0" in str(path):
        raise UsageError(f"{path} is no name of a file. Choose another with {flag}.")
    _refuse_link_in_run(path, flag)
    if is_device(path):
        return path  # as it is named: /dev/stdout leads to a pipe that has no name of its own
    place = Path(os.path.realpath(path))
    if os.path.isdir(place):
        raise UsageError(f"{path} is a folder. Name a file with {flag}.")
    if (run := _run_around(place)) is not None:
        _refuse_run_file(place, run, flag, of_run)
    for each in inputs:
        if each is not None and _is_of_input(place, each):
            raise UsageError(f"{path} is what this command reads, and is not replaced. Name another file with {flag}.")
    return place


def write_output(
    path: Path, content: bytes, flag: str = "-o", *, of_run: str | None = None, inputs: Iterable[Path | None] = ()
) -> None:
    with open_output(path, flag, of_run=of_run, inputs=inputs) as file:
        file.write(content)


@contextmanager
def open_output(
    path: Path, flag: str = "-o", *, of_run: str | None = None, inputs: Iterable[Path | None] = ()
) -> Iterator[BinaryIO]:
    """A file that takes the place of the old one when all of it is written; a device or pipe is written to in place."""
    place = check_output(path, flag, of_run=of_run, inputs=inputs)
    try:
        if is_device(place):
            with os.fdopen(_open_device(place), "wb") as file:
                yield file
            return
        disk, temporary = Disk(place.parent), temporary_name(place)
        with os.fdopen(disk.create(temporary), "wb") as file:
            try:
                yield file
                file.flush()
                disk.sync(file.fileno())
                disk.rename(temporary, place)
            except BaseException:  # also Ctrl-C: nothing stays beside the old one
                disk.unlink(temporary)
                raise
        disk.sync_directory(place.parent)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}. Choose another place with {flag}."
        ) from error


def check_output_folder(path: Path) -> Path:
    """Where a folder of results really goes; a run folder and what lies in it are refused."""
    _refuse_link_in_run(path, "-o")
    place = Path(os.path.realpath(path))
    if os.path.lexists(place) and not os.path.isdir(place):
        raise UsageError(f"{path} cannot be written: it is a file. Choose another place with -o.")
    run = place if _is_run(place) else _run_around(place)
    if run is not None and (run == place or place.relative_to(run).parts[0] in (*INNER, *OWN_NAMES)):
        raise UsageError(f"{path} belongs to the run {run}. Name another folder with -o.")
    return place


def _is_of_input(place: Path, given: Path) -> bool:
    """Whether a file that is there is an input, or lies in a folder of inputs. What else lies in a run is the
    user's."""
    source = Path(os.path.realpath(os.path.expanduser(given)))
    if not os.path.lexists(place) or not os.path.lexists(source):
        return False
    return os.path.samefile(place, source) or (place.is_relative_to(source) and not _is_run(source))


def _refuse_link_in_run(path: Path, flag: str) -> None:
    """A link outside of runs is the user's; one inside could have come with the run."""
    spot = Path(os.path.abspath(path))
    for place in (spot, *spot.parents):
        if os.path.islink(place) and _run_around(place) is not None:
            raise UsageError(f"{place} is a symbolic link inside a run folder. Name another file with {flag}.")


def _run_around(place: Path) -> Path | None:
    return next((folder for folder in place.parents if _is_run(folder)), None)


def _is_run(folder: Path) -> bool:
    run = RunFolder(folder)
    return any(os.path.lexists(each) for each in (run.record, run.config)) or (
        os.path.lexists(run.status_file) and os.path.isdir(run.checkpoints)
    )


def _refuse_run_file(place: Path, run: Path, flag: str, of_run: str | None) -> None:
    first, *rest = place.relative_to(run).parts
    named = first.lower()  # a disk that ignores case has the same file under other names
    ours = named in OWN_NAMES or any(named == f"record.sqlite{ending}" for ending in BESIDE_RECORD)
    inside = named in INNER and bool(rest)
    if (ours and not (not rest and first == of_run)) or (inside and (named != "samples" or os.path.lexists(place))):
        raise UsageError(f"{place} is a file of the run {run}, which is not replaced. Name another file with {flag}.")


def is_device(place: Path) -> bool:
    """Neither a regular file, nor a folder, nor missing."""
    try:
        return not stat.S_ISREG(mode := os.stat(place).st_mode) and not stat.S_ISDIR(mode)
    except OSError:
        return False


def _open_device(place: Path) -> int:
    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise UsageError(f"{place} is a pipe or socket that nobody reads from.") from error
        raise
    os.set_blocking(descriptor, True)
    return descriptor
