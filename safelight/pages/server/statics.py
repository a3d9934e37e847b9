"""The files of the pages: each at an address that changes with the files, so that a browser requests it only once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from safelight.pages.data.bundle import STATIC, bundle_script, bundle_style
from safelight.pages.data.run_files import plain_file_inside, read_bytes

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Some fifty small files as two: a browser takes a few milliseconds for each, also where it has them already.
MADE: dict[str, Callable[[], str]] = {"app.js": bundle_script, "app.css": bundle_style}
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
EDITION = re.compile(r"edition-[0-9a-f]{16}")
MAX_FILE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    kind: str
    tag: str
    lasting: bool
    """What is at this address never changes."""


def read_page() -> File:
    """The one page, with the addresses of this edition."""
    text = (STATIC / "index.html").read_text(encoding="utf-8").replace('"/static/', f'"/static/{edition()}/')
    return File(text.encode(), TYPES[".html"], f'"{edition()}"', lasting=False)


def read_static(name: str) -> File | None:
    """A file by its name, with an edition before it or without; None if there is none."""
    parts = name.split("/")
    lasting = parts[0] == edition()
    if EDITION.fullmatch(parts[0]):
        parts = parts[1:]  # another edition: of a page that is still open
    kind = TYPES.get(Path(parts[-1]).suffix) if parts else None
    if kind is None or not all(map(NAME.fullmatch, parts)):
        return None
    name = "/".join(parts)
    path = plain_file_inside(STATIC, name)
    content = make(name) if name in MADE else None if path is None else read_bytes(path, MAX_FILE_BYTES)
    return None if content is None else File(content, kind, f'"{edition()}-{len(content):x}"', lasting)


@cache
def make(name: str) -> bytes:
    return MADE[name]().encode()


@cache
def edition() -> str:
    """The edition of the files as they were at the first request."""
    content = hashlib.sha256()
    for path in sorted(path for path in STATIC.rglob("*") if path.is_file()):
        content.update(path.relative_to(STATIC).as_posix().encode() + b"\0")
        content.update(hashlib.sha256(path.read_bytes()).digest())
    return f"edition-{content.hexdigest()[:16]}"
