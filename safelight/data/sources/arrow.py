"""A dataset that HF `datasets` saved to disk, read through that package where it is installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safelight.data.decode import Unreadable
from safelight.data.sources import Entry
from safelight.errors import DataError

STATE, SPLITS = "state.json", "dataset_dict.json"


def is_dataset(path: Path) -> bool:
    return ((path / STATE).is_file() and (path / "dataset_info.json").is_file()) or (path / SPLITS).is_file()


class Dataset:
    """The first column of images and the first of class labels; of several splits, `train`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows, self._picture, self._label, self._names = _open(path)

    @property
    def place(self) -> str:
        return str(self.path)

    def entries(self) -> Iterator[Entry]:
        stamp = sum(file.stat().st_mtime_ns for file in self.path.rglob("*.arrow"))
        labels = self._rows[self._label] if self._label else None
        for index in range(len(self._rows)):
            number = None if labels is None else labels[index]
            known = number is not None and 0 <= number < len(self._names)
            yield Entry(f"{index:09}", -1, stamp, self._names[number] if known and number is not None else None)

    def read(self, name: str, most: int) -> bytes:
        try:
            cell: dict[str, Any] | None = self._rows[int(name)][self._picture]
            content = (cell or {}).get("bytes")
            if content is None and cell and cell.get("path"):
                with open(cell["path"], "rb") as file:
                    content = file.read(most + 1)
        except OSError as error:
            raise Unreadable(f"it cannot be opened: {error.strerror}", lasting=False) from None
        if content is None:
            raise Unreadable("the row holds no picture")
        if len(content) > most:
            raise Unreadable(f"it has more bytes than data.max_megabytes allows ({most / 1e6:g} MB)")
        return content

    def passed_over(self) -> list[tuple[str, str]]:
        return []

    def nothing_inside(self) -> str:
        return f"The dataset in {self.path} has no rows. Give another one."


def _open(path: Path) -> tuple[Any, str, str | None, list[str]]:
    try:
        import datasets  # pyright: ignore[reportMissingImports]  not a dependency: used where it is there
    except ImportError:
        raise DataError(
            f"{path} is a dataset of HF datasets, and that package is not installed. Install it with "
            "pip install datasets, or save the images as files into a folder."
        ) from None
    try:
        datasets.disable_progress_bars()
        loaded = datasets.load_from_disk(str(path / "train" if _has_train(path) else path))
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
    kept = loaded.select_columns(pictures[:1] + labels[:1]).cast_column(pictures[0], datasets.Image(decode=False))
    return kept, pictures[0], labels[0] if labels else None, names


def _has_train(path: Path) -> bool:
    if not (path / SPLITS).is_file():
        return False
    try:
        return "train" in json.loads((path / SPLITS).read_text()).get("splits", [])
    except (OSError, ValueError, AttributeError):
        return False
