"""A dataset that HF `datasets` saved to disk, read through that package where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safelight.data.decode import UnreadableImage
from safelight.data.sources import SourceFile, refuse_large
from safelight.data.sources.image_folder import ImageFolder
from safelight.errors import DataError

STATE, SPLITS = "state.json", "dataset_dict.json"


def is_dataset(path: Path) -> bool:
    return ((path / STATE).is_file() and (path / "dataset_info.json").is_file()) or (path / SPLITS).is_file()


class Dataset:
    """The first column of images and the first of class labels; of several splits, `train`."""

    def __init__(self, path: Path) -> None:
        self.path, self.passed_over = path, list[tuple[str, str]]()
        # Arrow's own columns, mapped from disk: the package would hash every step of preparing them.
        self._pictures, self._labels, self._names = _columns(path)

    def entries(self) -> Iterator[SourceFile]:
        stamp = max((file.stat().st_mtime_ns for file in self.path.rglob("*.arrow")), default=0)
        for index in range(len(self._pictures)):
            number = None if self._labels is None else self._labels[index].as_py()
            label = self._names[number] if number is not None and 0 <= number < len(self._names) else None
            yield SourceFile(f"{index:09}", -1, stamp, label)

    def read(self, name: str, most: int) -> bytes:
        cell: dict[str, Any] = self._pictures[int(name)].as_py() or {}
        content = cell.get("bytes")
        if content is None and cell.get("path"):
            where = Path(cell["path"])
            return ImageFolder(where.parent).read(where.name, most)
        if content is None:
            raise UnreadableImage("the row holds no picture")
        return refuse_large(content, most)

    def nothing_inside(self) -> str:
        return f"The dataset in {self.path} has no rows. Give another one."


def _columns(path: Path) -> tuple[Any, Any | None, list[str]]:
    try:
        import datasets  # pyright: ignore[reportMissingImports]  not a dependency: used where it is there
    except ImportError:
        raise DataError(
            f"{path} is a dataset of HF datasets, and that package is not installed. Install it with "
            "pip install datasets, or save the images as files into a folder."
        ) from None
    try:
        loaded = datasets.load_from_disk(str(path / "train" if (path / "train" / STATE).is_file() else path))
    except Exception as error:  # whatever the package raises for a damaged folder
        raise DataError(f"The dataset in {path} cannot be opened: {error}") from error
    if isinstance(loaded, datasets.DatasetDict):
        raise DataError(f"{path} has the splits {', '.join(loaded)} and none called train. Give {path}/{min(loaded)}.")
    pictures = [name for name, kind in loaded.features.items() if isinstance(kind, datasets.Image)]
    labels = [name for name, kind in loaded.features.items() if isinstance(kind, datasets.ClassLabel)]
    if not pictures:
        raise DataError(
            f"The dataset in {path} has the columns {', '.join(loaded.features)}, and none of them holds images. "
            "Cast one: dataset.cast_column(NAME, datasets.Image())"
        )
    names = loaded.features[labels[0]].names if labels else []
    return loaded.data.column(pictures[0]), loaded.data.column(labels[0]) if labels else None, names
