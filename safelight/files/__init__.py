"""Files below a run or cache folder: every write, lock, rename and delete of them, and the guarded way to read them."""

from __future__ import annotations

from safelight.files.disk import DISK, TEMPORARY, Disk, is_folder, list_names, status_of
from safelight.files.lock import RunLock, open_lock
from safelight.files.reading import (
    CHUNK,
    MAX_PICTURE_BYTES,
    Unreadable,
    open_mapped,
    open_plain,
    open_regular,
    read_chunks,
    read_json,
    read_plain,
    read_tensor_file,
)
from safelight.files.writing import (
    append_to,
    create_file,
    make_directories,
    move_aside,
    remove_tree,
    replace_atomically,
    temporary_name,
    try_to_remove,
    write_atomically,
    write_durably,
)

__all__ = [
    "CHUNK", "DISK", "MAX_PICTURE_BYTES", "TEMPORARY", "Disk", "RunLock", "Unreadable", "append_to", "create_file",
    "is_folder", "list_names", "make_directories", "move_aside", "open_lock", "open_mapped", "open_plain",
    "open_regular", "read_chunks", "read_json", "read_plain", "read_tensor_file", "remove_tree",
    "replace_atomically", "status_of", "temporary_name", "try_to_remove", "write_atomically", "write_durably",
]  # fmt: skip
