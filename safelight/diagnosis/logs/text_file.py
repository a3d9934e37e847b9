"""Lines of a text file in any usual encoding, none of them too long, without holding the file in memory."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from safelight.errors import UsageError

MAX_LINE_LENGTH = 1 << 16  # characters of a line; the rest of it is left out
LOOK = 1 << 13  # bytes that tell whether it is text
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def encoding_of(path: Path) -> str:
    """UsageError for what is not text."""
    try:
        with path.open("rb") as file:
            begin = file.read(LOOK)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    if not begin:
        raise UsageError(f"{path} is empty.")
    for mark, name in MARKS.items():
        if begin.startswith(mark):
            return name
    if b"\0" in begin:
        raise UsageError(f"{path} is not text. Name a CSV, JSON lines, a text log, or a TensorBoard or W&B file.")
    return "utf-8"


def lines_of(path: Path) -> Iterator[str]:
    """Also those that a progress bar overwrote, which end with a carriage return."""
    with path.open(encoding=encoding_of(path), errors="replace", newline=None) as file:
        cut = False
        while line := file.readline(MAX_LINE_LENGTH):
            ends = line.endswith("\n")
            if not cut:
                yield line.rstrip("\n")
            cut = not ends
