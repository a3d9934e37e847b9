"""A folder of images, read to its depths; the folders on its first level are classes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from safelight.data.decode import EXTENSIONS, UnreadableImage
from safelight.data.sources import SourceFile, refuse_large
from safelight.words import printable

LOOSE = "."  # class of images that are in no subfolder


class ImageFolder:
    """Every real folder is read once, however many links lead to it, and under its own name if it has one."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.passed_over: list[tuple[str, str]] = []
        self._others: Counter[str] = Counter()

    def entries(self) -> Iterator[SourceFile]:
        self.passed_over, self._others = [], Counter()
        visited: set[tuple[int, int]] = set()
        folders, links = [""], list[str]()
        while folders or links:
            folder = folders.pop() if folders else links.pop(0)
            try:
                yield from self._within(folder, visited, folders, links)
            except OSError as error:
                place = printable(folder) or str(self.top)
                self.passed_over.append((place, f"the folder cannot be listed: {error.strerror}"))

    def read(self, name: str, most: int) -> bytes:
        path = self.top / name
        if not path.is_file():  # a pipe would block
            raise UnreadableImage("it is not a file: a broken link, a pipe or a device", "any time")
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                content = file.read(min(size, most) + 1)  # read(n) takes n bytes of memory first
        except OSError as error:
            raise UnreadableImage(f"it cannot be opened: {error.strerror}", "any time") from None
        return refuse_large(content, most)

    def nothing_inside(self) -> str:
        for folder, reason in self.passed_over:
            return f"{folder}: {reason}. Check its permissions."
        advice = "Convert them to one of these, or give another folder."
        if not self._others:
            advice = "Put images into it or give another folder."
        if idx := sorted(path.name for path in self.top.glob("*images*idx*")):
            advice = f"To read an idx file, name it: {self.top / idx[-1]}"
        elif archives := sorted(path.name for path in self.top.glob("*.[zZ][iI][pP]")):
            advice = f"To read a zip, name it: {self.top / archives[0]}"
        return no_images(self.top, self._others, advice)

    def _within(
        self, folder: str, visited: set[tuple[int, int]], folders: list[str], links: list[str]
    ) -> Iterator[SourceFile]:
        status = os.stat(self.top / folder)
        if (status.st_dev, status.st_ino) in visited:
            return
        visited.add((status.st_dev, status.st_ino))
        inner: list[tuple[str, bool]] = []
        with os.scandir(self.top / folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue  # hidden entries are thumbnails, trash and forks
                name = f"{folder}/{entry.name}" if folder else entry.name
                link = entry.is_symlink()
                if os.path.isdir(entry) if link else entry.is_dir():  # is_dir() raises at a link to itself
                    inner.append((name, link))
                elif is_image(name):
                    yield _entry(name, entry)
                else:
                    self._others[ending(name)] += 1
        # Sorted, so that of two links to one folder the same is followed everywhere.
        for name, link in sorted(inner):
            (links if link else folders).append(name)


def ending(name: str) -> str:
    return os.path.splitext(name)[1].lower() or "no ending"


def is_image(name: str) -> bool:
    return ending(name) in EXTENSIONS


def no_images(place: Path, others: Counter[str], advice: str) -> str:
    """The error message when there are only files with other endings, or nothing."""
    expected = f"{place} should hold images ({' '.join(ending[1:] for ending in EXTENSIONS)})"
    if not others:
        return f"{expected} and is empty. {advice}"
    came = ", ".join(f"{count:,} {ending}" for ending, count in others.most_common(4))
    return f"{expected} and holds {others.total():,} other files ({came}). {advice}"


def class_of(name: str) -> str:
    top, slash, _ = name.partition("/")
    return top if slash else LOOSE


def _entry(name: str, entry: os.DirEntry[str]) -> SourceFile:
    try:
        status = entry.stat()
        return SourceFile(name, status.st_size, status.st_mtime_ns, class_of(name))
    except OSError:  # a broken link: read() says so
        return SourceFile(name, -1, 0, class_of(name))
