"""JSON: one object on each line, or one document that holds a list of them, as HF Trainer's trainer_state.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safelight.diagnosis.logs.cells import Row, flatten, number_of
from safelight.diagnosis.logs.text_file import encoding_of, lines_of
from safelight.errors import UsageError

MOST_BYTES = 256 << 20  # of a document, which has to be read whole
DEPTH = 4  # at which a list of entries may lie in it


def rows(path: Path) -> Iterator[Row]:
    """Lines that are no object are passed over: a kill may have torn the last one."""
    for line in lines_of(path):
        entry = _parse(line)
        if isinstance(entry, dict):
            yield dict(flatten(entry))
        elif number_of(entry) is not None:
            yield {"loss": entry}


def document_rows(path: Path) -> Iterator[Row]:
    if path.stat().st_size > MOST_BYTES:
        raise UsageError(
            f"{path} is one JSON document of more than {MOST_BYTES >> 20} MB. Write one object on each line instead."
        )
    found = _parse(path.read_text(encoding=encoding_of(path), errors="replace"))
    if found is None:
        raise UsageError(f"{path} is not JSON: neither one document nor one object on each line.")
    for entry in _entries(found):
        yield dict(flatten(entry)) if isinstance(entry, Mapping) else {"loss": entry}


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _entries(document: Any) -> list[Any]:
    """The longest list of objects; else lists of numbers side by side; else a list of numbers."""
    lists = [found for found in _lists(document, DEPTH) if found]
    objects = [each for each in lists if isinstance(each[0], dict)]
    if objects:
        return [each for each in max(objects, key=len) if isinstance(each, dict)]
    by_name = _side_by_side(document, DEPTH)
    if by_name:
        return by_name
    return max(lists, key=len) if lists else [document] if isinstance(document, dict) else []


def _lists(value: Any, depth: int) -> Iterator[list[Any]]:
    if isinstance(value, list):
        yield value
    elif isinstance(value, dict) and depth:
        for each in value.values():
            yield from _lists(each, depth - 1)


def _side_by_side(value: Any, depth: int) -> list[dict[str, Any]]:
    """{"loss": [1, 2], "lr": [3, 4]}: as Keras and many a script keep them."""
    if not isinstance(value, dict) or not depth:
        return []
    lists = {name: each for name, each in value.items() if isinstance(each, list) and each}
    if not lists:
        return max((_side_by_side(each, depth - 1) for each in value.values()), key=len, default=[])
    longest = max(map(len, lists.values()))
    kept = {name: each for name, each in lists.items() if len(each) == longest}
    return [dict(zip(kept, cells, strict=True)) for cells in zip(*kept.values(), strict=True)]


def is_lines(path: Path) -> bool:
    """Whether the first line that is not empty is an object of its own."""
    first = next((line for line in lines_of(path) if line.strip()), "")
    return isinstance(_parse(first), dict)


def is_json(path: Path) -> bool:
    first = next((line for line in lines_of(path) if line.strip()), "")
    return first.lstrip()[:1] in ("{", "[")
