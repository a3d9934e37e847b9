"""The file that Weights & Biases keeps of a run, offline or not: run-ID.wandb.

It is a log of LevelDB with a header of 7 bytes: blocks of 32 KB, each with pieces of records. The wandb package had a
reader for it up to 0.2x; since then only its messages are left there.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safelight.diagnosis.logs.cells import STEP, Row, flatten
from safelight.diagnosis.logs.packages import MissingPackage
from safelight.errors import UsageError

MARK, HEADER = b":W&B", 7
BLOCK, PIECE = 32768, struct.Struct("<IHB")
WHOLE, FIRST, LAST = 1, 2, 4
MAX_RECORD_BYTES = 64 << 20  # bytes of one record


def rows(path: Path) -> Iterator[Row]:
    try:
        from wandb.proto import wandb_internal_pb2 as messages
    except ImportError as error:
        raise MissingPackage(path, "W&B", "wandb") from error
    record_of: Any = messages.Record  # type: ignore[attr-defined]  # made when it is imported
    for content in _records(path):
        try:
            record = record_of.FromString(content)
        except Exception:  # of another version, or broken
            continue
        if record.WhichOneof("record_type") == "history":
            yield _row(record.history)


def _row(history: Any) -> Row:
    found: dict[str, Any] = {}
    for item in history.item:
        try:
            value = json.loads(item.value_json)
        except ValueError:
            continue
        found["/".join(item.nested_key) if item.nested_key else item.key] = value
    if "_step" not in found and history.HasField("step"):
        found[STEP] = history.step.num
    return dict(flatten(found))


def _records(path: Path) -> Iterator[bytes]:
    """Up to the end, or to what a kill broke."""
    with path.open("rb") as file:
        if not file.read(HEADER).startswith(MARK):
            raise UsageError(f"{path} is not a file of W&B: it does not begin with {MARK.decode()}.")
        place, gathered = HEADER, b""
        while True:
            left = BLOCK - place % BLOCK
            if left < PIECE.size:  # the rest of a block that no piece fits into
                file.read(left)
                place += left
            head = file.read(PIECE.size)
            if len(head) < PIECE.size:
                return
            checksum, length, kind = PIECE.unpack(head)
            content = file.read(length)
            place += PIECE.size + length
            if len(content) < length or zlib.crc32(content, zlib.crc32(bytes([kind]))) != checksum:
                return
            gathered = content if kind in (WHOLE, FIRST) else gathered + content
            if len(gathered) > MAX_RECORD_BYTES:
                return
            if kind in (WHOLE, LAST):
                yield gathered
                gathered = b""
