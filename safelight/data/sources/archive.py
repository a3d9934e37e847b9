"""A zip of images, read where it lies; its folders are classes as those of a folder are."""

from __future__ import annotations

import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from safelight.data.decode import UnreadableImage
from safelight.data.sources import SourceFile, refuse_large
from safelight.data.sources.image_folder import class_of, ending, is_image, no_images
from safelight.errors import DataError


def is_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip" or zipfile.is_zipfile(path)


class Archive:
    """One folder around everything is the archive's own name and no class."""

    def __init__(self, path: Path) -> None:
        self.path, self.passed_over = path, list[tuple[str, str]]()
        self._others: Counter[str] = Counter()
        try:
            self._zip = zipfile.ZipFile(path)
            self._modified = path.stat().st_mtime_ns
        except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError) as error:
            raise DataError(f"{path} is no zip that can be read: {error}. Copy or download it again.") from None
        except OSError as error:
            raise DataError(f"{path} cannot be opened: {error.strerror or error}.") from None

    def entries(self) -> Iterator[SourceFile]:
        self._others = Counter()
        infos = [info for info in self._zip.infolist() if not info.is_dir() and not _hidden(info.filename)]
        wrapper = _wrapper([info.filename for info in infos if is_image(info.filename)])
        for info in infos:
            if is_image(info.filename):
                # The checksum of the content says more than any date; a new archive is read again.
                stamp = self._modified ^ info.CRC
                yield SourceFile(info.filename, info.file_size, stamp, class_of(info.filename.removeprefix(wrapper)))
            else:
                self._others[ending(info.filename)] += 1

    def read(self, name: str, most: int) -> bytes:
        try:
            with self._zip.open(name) as file:
                content = file.read(most + 1)
        except RuntimeError as error:  # zipfile's word for a password
            raise UnreadableImage(f"it cannot be unpacked: {error}") from None
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, KeyError, ValueError, OSError) as error:
            raise UnreadableImage(f"it is damaged inside the zip: {error}") from None
        return refuse_large(content, most)

    def nothing_inside(self) -> str:
        return no_images(self.path, self._others, "Give another archive.")


def _hidden(name: str) -> bool:
    """Dot files, and what a Mac adds to every archive."""
    return name.startswith("__MACOSX/") or any(part.startswith(".") for part in name.split("/"))


def _wrapper(names: list[str]) -> str:
    tops = {class_of(name) for name in names}
    return f"{tops.pop()}/" if len(tops) == 1 and "/" in names[0] else ""
