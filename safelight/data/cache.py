"""Prepared images on disk: written once, whole or not at all, verified when opened, shared by processes."""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from safelight.config.tree import Data
from safelight.data.images import Images
from safelight.data.listing import Names
from safelight.data.rows import GREY, ROW
from safelight.errors import CheckpointError, DataError, RecordError
from safelight.files import (
    DISK,
    TEMPORARY,
    Disk,
    make_directories,
    open_lock,
    open_mapped,
    open_plain,
    read_chunks,
    read_plain,
    remove_tree,
    status_of,
    try_to_remove,
    write_atomically,
)
from safelight.files.places import cache_home
from safelight.words import printable

VERSION = 1
PIXELS, LABELS, ROWS = "pixels.u8", "labels.i4", "rows.bin"
NEAR, NAMES, MANIFEST = "near.i4", "names.sqlite", "manifest.json"
LARGEST_MANIFEST = 256 << 20  # bytes
SPOT_CHECKS = 32  # images compared with their checksums when a cache is opened; the others when first read
KEPT_SECONDS = 7 * 86_400  # a set that changed keeps its earlier cache for so long after it was last opened

Say = Callable[[str], None]


def cache_root(data: Data, say: Say) -> Path:
    """Where caches lie; a folder for this process alone where the usual one cannot be written to."""
    chosen = data.cache or os.environ.get("SAFELIGHT_CACHE")
    root = Path(os.path.expanduser(data.cache)) if data.cache else cache_home()
    try:
        if root is None:
            raise OSError(errno.ENOENT, "this user has no home folder")
        make_directories(root)
        if os.access(root, os.W_OK):
            return root
        reason = "no permission to write"
    except OSError as error:
        reason = error.strerror or str(error)
    if chosen:
        raise DataError(f"The cache folder {root} cannot be used: {reason}. Choose another with --set data.cache=DIR")
    temporary = Path(tempfile.mkdtemp(prefix="safelight-"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    lost = root or "A cache folder"
    say(f"{lost} cannot be used ({reason}): the images are prepared in {temporary}, for this run only.")
    return temporary


def folder_name(data: Data, slot: str, key: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(data.source).stem).strip("-.")[:40] or "images"
    return f"{stem}-{data.image_size}px-{slot[:12]}-{key[:16]}"


def earlier_caches(folder: Path) -> list[Path]:
    """Other states of the same source, prepared in the same way, newest first."""
    slot = folder.name.rpartition("-")[0]
    found = [path for path in folder.parent.glob(f"{slot}-*") if path != folder and (path / MANIFEST).is_file()]
    return sorted(found, key=lambda path: (path / MANIFEST).stat().st_mtime, reverse=True)


def open_cache(folder: Path) -> Images | None:
    """None if there is no cache or it does not verify. Takes milliseconds and no memory, however many images."""
    try:
        manifest = read_manifest(folder)
        if manifest is None:
            return None
        disk, (count, side, channels) = Disk(folder.parent), manifest["shape"]
        names = Names(folder / NAMES, disk) if manifest["names"] else None
        images = Images(
            pixels=open_mapped(folder / PIXELS, np.dtype(np.uint8), (count, side, side, channels), disk),
            labels=_in_memory(folder / LABELS, np.dtype("<i4"), (count,)) if manifest["class_names"] else None,
            class_names=tuple(manifest["class_names"]),
            fingerprint=manifest["fingerprint"],
            names=names,
            rejected=[(printable(name), reason) for name, reason, _ in names.rejected()] if names else (),
            rows=open_mapped(folder / ROWS, ROW, (count,), disk),
            near=_in_memory(folder / NEAR, np.dtype("<i4"), (manifest["near"], 2)),
            facts=manifest["facts"],
        )
        images.take(np.unique(np.linspace(0, count - 1, SPOT_CHECKS).astype(np.int64)))
    except (OSError, ValueError, KeyError, TypeError, sqlite3.Error, DataError, CheckpointError, RecordError):
        return None
    with contextlib.suppress(OSError, CheckpointError), open_plain(folder / MANIFEST, disk) as (descriptor, _):
        os.utime(descriptor)  # so that caches in use are known
    return images


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """None if it is missing, was changed, or a file has another size than it says."""
    try:
        manifest = json.loads(read_plain(folder / MANIFEST, LARGEST_MANIFEST, Disk(folder.parent)))
        verified = (
            manifest.pop("seal") == _seal(manifest)
            and manifest["version"] == VERSION
            and all(os.path.getsize(folder / name) == size for name, size in manifest["bytes"].items())
            and (not manifest["class_names"] or _sha256(folder / LABELS) == manifest["labels"])
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, CheckpointError):
        return None
    return manifest if verified else None


def _in_memory(path: Path, kind: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """What is small is read at once: a file that is cut while it is mapped ends the process."""
    return np.array(open_mapped(path, kind, shape, Disk(path.parents[1])))


def _seal(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with open_plain(path, Disk(path.parents[1])) as (descriptor, size):
        digest = hashlib.sha256()
        for chunk in read_chunks(descriptor, size):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def locked(folder: Path, say: Say) -> Iterator[None]:
    """One process prepares a source at a time; the others wait and then find it done."""
    slot = folder.name.rpartition("-")[0]
    with os.fdopen(open_lock(folder.parent / f"{slot}.lock", Disk(folder.parent)), "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another process is preparing these images; waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks: two may prepare the same, and the last rename wins
        yield


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A temporary folder that becomes `folder` when all went well, and is gone when it did not."""
    disk, slot = Disk(folder.parent), folder.name.rpartition("-")[0]
    for left in folder.parent.glob(f"{TEMPORARY}{slot}-*"):  # of a process that was killed; we hold the lock
        try_to_remove(left, disk)
    temporary = folder.parent / f"{TEMPORARY}{folder.name}-{secrets.token_hex(4)}"
    try:
        disk.make_directory(temporary)
        yield temporary
        if status_of(folder, disk) is not None:  # it was there and did not verify
            remove_tree(folder, disk)
        disk.rename(temporary, folder)
        disk.sync_directory(folder.parent)
    except OSError as error:
        raise DataError(
            f"The images cannot be prepared in {folder.parent}: {error.strerror or error}. Make room there, or choose "
            "another place with --set data.cache=DIR (or SAFELIGHT_CACHE in the environment)."
        ) from error
    finally:
        try_to_remove(temporary, disk)


def refuse_small_disk(folder: Path, wanted: int) -> None:
    """Before hours of decoding, not after them."""
    free = DISK.free(folder)
    if free is not None and wanted > free:
        raise DataError(
            f"The prepared images would take {wanted / 1e9:.2f} GB, but {folder.parent} has {free / 1e9:.2f} GB free. "
            "Make room, train on smaller images, or choose another place with --set data.cache=DIR"
        )


def forget_old(folder: Path) -> None:
    """Removes earlier states of a source that were not opened for a week."""
    for path in earlier_caches(folder):
        with contextlib.suppress(OSError):
            if time.time() - (path / MANIFEST).stat().st_mtime > KEPT_SECONDS:
                remove_tree(path, Disk(folder.parent))


def seal(folder: Path, manifest: dict[str, Any]) -> None:
    """The last file: without it the folder is not a cache."""
    present = [name for name in (PIXELS, LABELS, ROWS, NEAR, NAMES) if (folder / name).is_file()]
    manifest = manifest | {
        "version": VERSION,
        "bytes": {name: os.path.getsize(folder / name) for name in present},
        "labels": _sha256(folder / LABELS) if LABELS in present else None,
    }
    # Through JSON once, so that what is sealed is what will be read.
    manifest = json.loads(json.dumps(manifest))
    content = json.dumps(manifest | {"seal": _seal(manifest)}, indent=1).encode()
    write_atomically(folder / MANIFEST, content, Disk(folder.parent))


def stored_image(images: Images, row: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, pixels) as they were decoded, from an earlier cache."""
    assert images.rows is not None
    pixels = images.take(np.array([row]))[0]
    record = images.rows[row]
    return record, pixels[:, :, :1] if record["marks"] & GREY else pixels
