"""Checkpoints reach every process, or none of them continues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from moments import QUICK, assert_equal, snapshot
from torch import Tensor

from safelight.checkpoints.folder import corrupt, steps
from safelight.checkpoints.loading import load_ema, load_latest, load_once, load_rows_newest, require_shared_folder
from safelight.checkpoints.reader import load
from safelight.checkpoints.writer import write
from safelight.errors import CheckpointError, UsageError
from safelight.files import Unreadable
from safelight.processes.group import ProcessGroup
from safelight.processes.slices import EVERYTHING, Shard

ALONE = ProcessGroup()
SHARD = Shard(1, 2, {"weight": (3, 2)})


@dataclass
class Group:
    """One of two processes: what the first one sends is on the `wire`, and `others` answer as they are made to."""

    is_main: bool
    wire: list[Any] = field(default_factory=list)
    others: Callable[[Any], Any] = lambda mine: mine
    size: int = 2

    def broadcast(self, find: Callable[[], Any]) -> Any:
        if self.is_main:
            self.wire.append(find())
            return self.wire[-1]
        return self.wire.pop(0)

    def broadcast_tensor(self, tensor: Tensor) -> Tensor:
        return tensor.copy_(self.broadcast(tensor.clone))

    def all_gather_object(self, value: Any) -> list[Any]:
        return [self.others(value), value] if not self.is_main else [value, self.others(value)]


def group(*arguments: Any) -> ProcessGroup:
    return cast(ProcessGroup, Group(*arguments))


def test_the_same_bytes_reach_a_process_that_read_nothing(tmp_path: Path) -> None:
    path, wire = write(tmp_path, snapshot(3), disk=QUICK), list[Any]()
    assert_equal(load_once(ALONE, lambda: load(path)), snapshot(3))
    main = load_once(group(True, wire), lambda: load(path))
    received = load_once(group(False, wire), lambda: pytest.fail("only the first process reads"))
    assert main is not None
    assert received is not None
    assert (received.path, wire) == (path, [])
    assert all(value.is_meta for tensors in received.tensors.values() for value in tensors.values())
    for stem in main.tensors:  # one at a time
        for name in main.contents(stem):
            sent = main.contents(stem)[name]
            assert len(wire) == 1
            assert torch.equal(received.contents(stem)[name], sent)
    contents = {stem: dict(main.contents(stem)) for stem in main.tensors}
    assert_equal(replace(received, tensors={stem: dict(received.contents(stem)) for stem in contents}), snapshot(3))


def test_nothing_there_is_none_everywhere(tmp_path: Path) -> None:
    wire: list[Any] = []
    assert load_once(group(True, wire), lambda: None) is None
    assert load_once(group(False, wire), lambda: pytest.fail("only the first process reads")) is None
    assert load_latest(ALONE, tmp_path, None, pytest.fail) is None


def test_damage_that_another_process_found_is_refused_by_all_and_set_aside_by_the_first(tmp_path: Path) -> None:
    for step in (1, 2):
        write(tmp_path, snapshot(step), disk=QUICK)

    refused: list[str] = []

    def damaged(mine: Any) -> Any:
        """The other process sees every folder, and cannot read the newest."""
        return ("a part is damaged", False) if isinstance(mine, tuple) and not refused else mine

    wire: list[Any] = [[str(tmp_path / f"step_0000000{step}") for step in (2, 1)]]
    found = load_rows_newest(group(False, wire, damaged), tmp_path, SHARD, refused.append)
    assert found is not None
    assert (found.step, len(refused)) == (1, 1)
    assert steps(tmp_path) == [1, 2], "it is for the first process to set it aside"
    refused.clear()
    found = load_rows_newest(group(True, [], damaged), tmp_path, SHARD, refused.append)
    assert found is not None
    assert (found.step, steps(tmp_path), len(corrupt(tmp_path))) == (1, [1], 1)


@pytest.mark.parametrize(("answer", "words"), [(False, "does not see"), (("open files", True), "open files")])
def test_what_another_process_cannot_read_now_is_left_as_it_is(tmp_path: Path, answer: Any, words: str) -> None:
    write(tmp_path, snapshot(1), disk=QUICK)
    others = group(True, [], lambda mine: answer if isinstance(mine, bool) == isinstance(answer, bool) else mine)
    with pytest.raises(Unreadable, match=words):
        load_rows_newest(others, tmp_path, SHARD, pytest.fail)
    assert steps(tmp_path) == [1]


def test_ema_is_refused_by_all_where_one_cannot_read_it(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1), disk=QUICK)
    expected = snapshot(1).tensors["ema"]
    for shard in (None, EVERYTHING):
        found = load_ema(group(True, []), tmp_path, 1, shard)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    with pytest.raises(CheckpointError, match="a part is damaged"):
        load_ema(group(True, [], lambda mine: "a part is damaged"), tmp_path, 1, EVERYTHING)


def test_folder_that_one_process_does_not_see_is_refused(tmp_path: Path) -> None:
    require_shared_folder(group(True), tmp_path)
    with pytest.raises(UsageError, match="Process 1 does not see the run folder"):
        require_shared_folder(group(True, [], lambda mine: False), tmp_path)
