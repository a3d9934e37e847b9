"""Rows of a checkpoint: any number of processes reads what any number wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from joint_saves import SHAPES, assert_same, part, whole, write_together
from moments import QUICK

from safelight.checkpoints import manifest
from safelight.checkpoints.reader import load, load_newest
from safelight.checkpoints.writer import write
from safelight.errors import CheckpointError
from safelight.processes.slices import Shard
from torture.disks import QuickDisk


@pytest.mark.parametrize("written_by", [1, 2, 3, 5])
@pytest.mark.parametrize("read_by", [1, 2, 3, 4])
def test_any_number_reads_what_any_number_wrote(written_by: int, read_by: int, tmp_path: Path) -> None:
    full = whole(7)
    if written_by == 1:
        write(tmp_path, full, disk=QUICK)
    else:
        assert write_together(tmp_path, full, written_by) == ([], [7] * written_by)
    path = tmp_path / "step_00000007"
    assert_same(load(path, disk=QUICK), full)
    for index in range(read_by):
        assert_same(load(path, Shard(index, read_by, SHAPES), disk=QUICK), part(full, index, read_by))
    assert_same(
        load(path, Shard(0, 2, SHAPES), stems={"ema"}, disk=QUICK),
        replace(part(full, 0, 2), tensors={"ema": part(full, 0, 2).tensors["ema"]}),
    )


def test_process_reads_no_file_that_holds_none_of_its_rows(tmp_path: Path) -> None:
    write_together(tmp_path, whole(7), 2)
    path = tmp_path / "step_00000007"
    opened: list[str] = []

    class Watched(QuickDisk):
        def read(self, descriptor: int, count: int) -> bytes:
            opened.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
            return super().read(descriptor, count)

    load(path, Shard(1, 2, SHAPES), stems={"ema"}, disk=Watched())
    assert set(opened) == {"manifest.json", "state.json", "ema.1-of-2.safetensors"}


def forge(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """A manifest that says something else and matches its own sha256."""
    body = json.loads((path / manifest.NAME).read_bytes())
    del body["sha256"]
    change(body)
    (path / manifest.NAME).write_bytes(manifest.seal(body))


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no layout": (lambda m: m.pop("divided"), "does not say how its tensors are divided"),
    "no files": (lambda m: m["divided"].update(count=0), "does not say how its tensors are divided"),
    "more files": (lambda m: m["divided"].update(count=3), "has no .*-of-3.safetensors"),
    "other rows": (lambda m: m["divided"]["tensors"]["model"]["weight"].update(rows=1), "has no model.2-of-2"),
    "rows of nothing": (lambda m: m["divided"]["tensors"]["model"]["counter"].update(rows=1), "is not described"),
    "more rows": (lambda m: m["divided"]["tensors"]["model"]["weight"].update(shape=[4, 2]), "rows 0 to 4"),
    "wider": (lambda m: m["divided"]["tensors"]["model"]["weight"].update(shape=[3, 3]), "rows"),
    "endless": (lambda m: m["divided"]["tensors"]["model"]["weight"].update(shape=[2**40] * 3), "is not described"),
    "another kind": (lambda m: m["divided"]["tensors"]["model"]["weight"].update(dtype="F16"), "rows"),
    "an unknown kind": (lambda m: m["divided"]["tensors"]["model"]["weight"].update(dtype="F1"), "not among"),
    "a tensor more": (
        lambda m: m["divided"]["tensors"]["model"].update(more={"dtype": "F32", "shape": [4], "rows": 2}),
        "rows 0 to 4",
    ),
    "a tensor less": (lambda m: m["divided"]["tensors"]["model"].pop("weight"), "lies where its manifest"),
    "called whole": (lambda m: m.update(format=1), "model"),
}


@pytest.mark.parametrize(("change", "words"), FORGERIES.values(), ids=FORGERIES.keys())
def test_manifest_that_does_not_fit_its_files_is_refused_in_words(
    change: Callable[[dict[str, Any]], object], words: str, tmp_path: Path
) -> None:
    write_together(tmp_path, whole(7), 2)
    forge(path := tmp_path / "step_00000007", lambda body: None)
    assert_same(load(path, disk=QUICK), whole(7))
    forge(path, change)
    if words == "model":  # files in parts are groups of their own then, which no run knows
        assert "model" not in load(path, disk=QUICK).tensors
        return
    with pytest.raises(CheckpointError, match=words):
        load(path, disk=QUICK)


def test_every_byte_of_every_part_is_guarded(tmp_path: Path) -> None:
    write_together(tmp_path, whole(3), 2)
    write_together(tmp_path, whole(7), 2)
    path = tmp_path / "step_00000007"
    for file in sorted(path.iterdir()):
        content = file.read_bytes()
        for place in (0, 9, len(content) // 2, len(content) - 1):
            file.write_bytes(bytes([*content[:place], content[place] ^ 64, *content[place + 1 :]]))
            with pytest.raises(CheckpointError):
                load(path, disk=QUICK)
        file.write_bytes(content)
    assert_same(load(path, disk=QUICK), whole(7))
    (path / "optimizer.1-of-2.safetensors").unlink()
    said: list[str] = []
    found = load_newest(tmp_path, said.append, disk=QUICK)
    assert found is not None
    assert_same(found, whole(3))
    assert "optimizer.1-of-2.safetensors is missing" in said[0]
