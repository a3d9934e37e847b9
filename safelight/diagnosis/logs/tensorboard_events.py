"""TensorBoard's event files, by the reader of the tensorboard package."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from safelight.diagnosis.logs.cells import STEP, Row
from safelight.diagnosis.logs.packages import MissingPackage

MARK = "tfevents"


def rows(files: Sequence[Path]) -> Iterator[Row]:
    """The rows of files in the order in which they were begun. Numbers of one step that come together are one row."""
    row: dict[str, Any] = {}
    for path in sorted(files, key=_begun):
        for event in _events(path):
            for tag, number in _scalars(event):
                if row and (row[STEP] != event.step or tag in row):
                    yield row
                    row = {}
                row |= {STEP: int(event.step), tag: number}
    if row:
        yield row


def _begun(path: Path) -> tuple[float, str]:
    """events.out.tfevents.1700000000.host: the seconds at which it was begun."""
    part = path.name.partition(f"{MARK}.")[2].partition(".")[0]
    return (float(part) if part.isdigit() else 0.0, path.name)


def _events(path: Path) -> Iterator[Any]:
    try:
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    except ImportError as error:
        raise MissingPackage(path, "TensorBoard", "tensorboard") from error
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    try:
        yield from LegacyEventFileLoader(str(path)).Load()
    except Exception:  # a record that a kill broke: what stands before it is good
        return


def _scalars(event: Any) -> Iterator[tuple[str, float]]:
    for value in event.summary.value:
        which = value.WhichOneof("value")
        if which == "simple_value":
            yield value.tag, float(value.simple_value)
        elif which == "tensor" and (number := _scalar(value.tensor)) is not None:
            yield value.tag, number


def _scalar(tensor: Any) -> float | None:
    """The number of a tensor of one number, as TensorFlow 2 writes scalars; None of texts and pictures."""
    from tensorboard.util import tensor_util

    try:
        number = np.asarray(tensor_util.make_ndarray(tensor))
    except (TypeError, ValueError):
        return None
    is_number = number.size == 1 and np.issubdtype(number.dtype, np.number)
    return float(number.reshape(())) if is_number else None
