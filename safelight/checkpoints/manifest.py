"""The manifest of a checkpoint: its files, their sizes and sha256, and the proof that all of it is whole."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safelight.checkpoints.tensorfile import unique
from safelight.errors import CheckpointError
from safelight.files import DISK, Disk, Unreadable, open_plain, read_chunks, read_plain
from safelight.files.threads import in_threads
from safelight.processes.slices import check_layout, is_whole_number

NAME = "manifest.json"
STATE = "state.json"
FORMAT, DIVIDED = 1, 2  # DIVIDED: tensors lie in pieces, which the manifest describes
LARGEST_JSON = 16 << 20
LARGEST_STEP = 10**12
_FILE = re.compile(r"[a-z0-9][a-z0-9._-]{0,120}\.safetensors", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a checkpoint."""

    name: str
    size: int
    sha256: str


def is_file_name(name: str) -> bool:
    """Plain lower-case names only: nothing that points elsewhere or meets its twin on another filesystem."""
    return name == STATE or _FILE.fullmatch(name) is not None


def is_step(value: Any) -> bool:
    return is_whole_number(value, 0, LARGEST_STEP)


def render(
    step: int, entries: Sequence[Entry], environment: dict[str, Any], sharded: dict[str, Any] | None = None
) -> bytes:
    """A manifest as it is written."""
    body: dict[str, Any] = {"step": step, "files": [asdict(entry) for entry in entries], "environment": environment}
    return seal(body | ({"format": FORMAT} if sharded is None else {"format": DIVIDED, "divided": sharded}))


def seal(body: dict[str, Any]) -> bytes:
    """Its own sha256 inside, so that a flipped bit shows here too. No later format may seal otherwise."""
    digest = hashlib.sha256(to_json(body)).hexdigest()
    return to_json(body | {"sha256": digest})


def to_json(value: dict[str, Any]) -> bytes:
    """The same content is always the same bytes."""
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def read(folder: Path, disk: Disk = DISK) -> dict[str, Any]:
    """The manifest of a checkpoint folder, checked; its files are not read."""
    path = folder / NAME
    raw = read_plain(path, LARGEST_JSON, disk)
    body = parse_json(raw, path)
    try:
        whole = seal({key: value for key, value in body.items() if key != "sha256"}) == raw
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise CheckpointError(f"{path} was changed after it was written: it does not match its own sha256.")
    if isinstance(body.get("format"), int) and body["format"] > DIVIDED:
        raise Unreadable(
            f"{path} has format {body['format']}; this version of safelight reads up to {DIVIDED}. "
            "It was left as it is: use the newer version that wrote it."
        )
    _check(body, folder)
    return body


def entries(manifest: dict[str, Any]) -> list[Entry]:
    """The files of a checked manifest."""
    return [Entry(**entry) for entry in manifest["files"]]


def parse_json(raw: bytes, path: Path) -> dict[str, Any]:
    """A JSON object, or an error that says what is wrong: never a crash of the parser."""
    try:
        value = json.loads(raw, object_pairs_hook=unique)
    except RecursionError:
        raise CheckpointError(f"{path} is nested too deeply to be one of ours.") from None
    except ValueError as error:  # also bad UTF-8 and integers of more than 4,300 digits
        raise CheckpointError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a {type(value).__name__}; an object was expected.")
    return value


def _check(body: dict[str, Any], folder: Path) -> None:
    path = folder / NAME
    step, files = body.get("step"), body.get("files")
    if body.get("format") not in (FORMAT, DIVIDED) or not is_step(step):
        raise CheckpointError(f"{path} is not a manifest of format {FORMAT} or {DIVIDED}, or its step is not a number.")
    named = re.fullmatch(r"step_([0-9]+)", folder.name)
    if named and int(named[1]) != step:
        raise CheckpointError(f"{path} is of step {step}, but its folder is called {folder.name}.")
    if not isinstance(files, list) or not isinstance(body.get("environment"), dict):
        raise CheckpointError(f"{path} has no list of files or no environment.")
    for entry in files:
        _check_entry(entry, path)
    if body["format"] == DIVIDED:
        check_layout(body.get("divided"), len(files), str(path))
    names = [entry["name"] for entry in files]
    if len(set(names)) != len(names) or STATE not in names:
        raise CheckpointError(f"{path} must name {STATE} and every file once; it names {names[:8]}.")


def _check_entry(entry: Any, path: Path) -> None:
    if not isinstance(entry, dict) or entry.keys() != {"name", "size", "sha256"}:
        raise CheckpointError(f"{path}: a file is not described by name, size and sha256.")
    name, size, digest = entry["name"], entry["size"], entry["sha256"]
    if not isinstance(name, str) or not is_file_name(name):
        raise CheckpointError(
            f"{path} names the file {name!r:.80}. Only {STATE} and plain *.safetensors beside it are opened."
        )
    if not is_whole_number(size, 0, LARGEST_JSON if name == STATE else 1 << 62):
        raise CheckpointError(f"{path}: the size of {name} is {size!r:.40}, which cannot be.")
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise CheckpointError(f"{path}: the sha256 of {name} is not 64 hexadecimal digits.")


def read_file(folder: Path, entry: Entry, disk: Disk = DISK) -> bytes:
    """The bytes of one file, which are exactly those that were written."""
    return b"".join(stream_file(folder, entry, disk))


def stream_file(folder: Path, entry: Entry, disk: Disk = DISK) -> Iterator[bytes]:
    """As `read_file`, piece by piece: only when the last one came is it known that all were right."""
    digest = hashlib.sha256()
    with open_plain(folder / entry.name, disk) as (descriptor, size):
        _check_size(folder, entry, size)
        for chunk in read_chunks(descriptor, size, disk):
            digest.update(chunk)
            yield chunk
    _check_digest(folder, entry, digest.hexdigest())


def _check_digest(folder: Path, entry: Entry, digest: str) -> None:
    if digest != entry.sha256:
        raise CheckpointError(
            f"{folder / entry.name} is damaged: its sha256 is {digest[:9]}…, {entry.sha256[:9]}… was written."
        )


def verify(folder: Path, disk: Disk = DISK, *, read_by_others: Container[str] = ()) -> None:
    """Read everything back; a CheckpointError says what is not as it was written. Of files that other processes wrote
    and have read back, only the size is checked."""

    def verify_one(entry: Entry) -> None:
        if entry.name in read_by_others:
            check_sizes(folder, [entry], disk)
        else:
            verify_file(folder, entry, disk)

    in_threads(verify_one, entries(read(folder, disk)), lambda entry: entry.size, disk)


def verify_file(folder: Path, entry: Entry, disk: Disk = DISK) -> None:
    for _ in stream_file(folder, entry, disk):
        pass


def is_whole(folder: Path, disk: Disk = DISK, *, read_all: bool = True) -> bool:
    """Whether every byte is as it was written; without `read_all`, whether there is a valid manifest and files of the
    right size: what can be known without reading gigabytes."""
    try:
        if read_all:
            verify(folder, disk)
        else:
            check_sizes(folder, entries(read(folder, disk)), disk)
    except CheckpointError:
        return False
    return True


def check_sizes(folder: Path, files: Iterable[Entry], disk: Disk = DISK) -> None:
    for entry in files:
        with open_plain(folder / entry.name, disk) as (_, size):
            _check_size(folder, entry, size)


def _check_size(folder: Path, entry: Entry, size: int) -> None:
    if size != entry.size:
        raise CheckpointError(
            f"{folder / entry.name} has {size:,} bytes; {entry.size:,} were written. It was cut or changed."
        )
