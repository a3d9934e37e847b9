"""Files of W&B: one that its package writes, and records that span blocks."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pytest
from loss_curves import healthy_curve

import safelight
from safelight.diagnosis.logs.wandb_file import BLOCK, HEADER, MARK, rows
from safelight.errors import UsageError

wandb = pytest.importorskip("wandb")


def framed(records: list[bytes]) -> bytes:
    """A log of LevelDB, by its specification."""
    out = bytearray(MARK + b"\xe1\xbe\x00")
    assert len(out) == HEADER
    for record in records:
        rest, kind = record, 1
        first = True
        while True:
            left = BLOCK - len(out) % BLOCK
            if left < 7:
                out += bytes(left)
                continue
            piece, rest = rest[: left - 7], rest[left - 7 :]
            kind = (1 if not rest else 2) if first else (4 if not rest else 3)
            out += struct.pack("<IHB", zlib.crc32(piece, zlib.crc32(bytes([kind]))), len(piece), kind) + piece
            first = False
            if not rest:
                break
    return bytes(out)


def history(step: int, **numbers: object) -> bytes:
    from wandb.proto import wandb_internal_pb2 as messages

    record = messages.Record()
    for key, value in {**numbers, "_step": step}.items():
        record.history.item.add(key=key, value_json=json.dumps(value))
    return record.SerializeToString()


def test_records_that_span_blocks_and_a_broken_end(tmp_path: Path) -> None:
    path = tmp_path / "run-1.wandb"
    content = framed([history(k, loss=0.5, long="x" * 9000, nested={"a": 1}) for k in range(40)])
    path.write_bytes(content[:-100])
    found = list(rows(path))
    assert [row["_step"] for row in found] == list(range(39))
    assert found[0]["nested/a"] == 1


def test_what_is_not_of_wandb(tmp_path: Path) -> None:
    path = tmp_path / "run-1.wandb"
    path.write_bytes(b"something else")
    with pytest.raises(UsageError, match="not a file of W&B"):
        list(rows(path))


def test_a_folder_that_its_package_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(project="x", dir=tmp_path, mode="offline", settings=wandb.Settings(x_disable_stats=True))
    for step, loss in enumerate(healthy_curve(3, 300, 16)):
        run.log({"train/loss": float(loss) if step < 250 else float("nan"), "lr": 1e-4, "trainer/global_step": step})
    run.finish()
    found = safelight.diagnose(tmp_path)
    assert [(finding.code, finding.step) for finding in found] == [("LOS001", 250)]
