"""Rows of sharded tensors: every row has one holder, and only what fits together is joined."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from safelight.errors import CheckpointError
from safelight.processes.slices import Shard, check_layout, describe, holders, join, parameter_of


@pytest.mark.parametrize(("size", "count"), [(8, 2), (7, 3), (2, 4), (1, 1), (0, 2)])
def test_every_row_has_one_holder_as_torch_cuts(size: int, count: int) -> None:
    held = [Shard(index, count, {}).rows(size) for index in range(count)]
    assert [row for start, stop in held for row in range(start, stop)] == list(range(size))
    if size:
        chunks = [len(chunk) for chunk in torch.arange(size).chunk(count)]
        assert [stop - start for start, stop in held] == chunks + [0] * (count - len(chunks))


@pytest.mark.parametrize(
    ("stem", "name", "parameter"),
    [
        ("model", "conv.weight", "conv.weight"),
        ("profiles", "0.05/conv.weight", "conv.weight"),
        ("optimizer", "conv.weight/exp_avg", "conv.weight"),
        ("optimizer", "conv.weight/step", None),
        ("monitors", "conv.weight", None),
    ],
)
def test_which_tensors_have_the_shape_of_a_parameter(stem: str, name: str, parameter: str | None) -> None:
    assert parameter_of(stem, name) == parameter


def test_what_is_described_passes_the_check() -> None:
    shard = Shard(1, 2, {"w": (5, 3)})
    tensors = {"model": {"w": torch.zeros(2, 3), "count": torch.tensor(1.0)}}
    found = describe(tensors, shard, {torch.float32: "F32"})
    assert found["tensors"]["model"]["w"] == {"dtype": "F32", "shape": [5, 3], "rows": 3}
    assert found["tensors"]["model"]["count"] == {"dtype": "F32", "shape": [], "rows": None}
    check_layout(found, 2, "here")
    with pytest.raises(CheckpointError, match="not described by dtype, shape and rows"):
        check_layout(found, 1, "here")  # five rows, three in a file, one file


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 0},
        {"rows": True},
        {"shape": []},
        {"shape": [-1, 3]},
        {"shape": [1 << 30] * 3},
        {"dtype": 4},
        {"more": 1},
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any]) -> None:
    spec = {"dtype": "F32", "shape": [5, 3], "rows": 3}
    check_layout({"count": 2, "tensors": {"model": {"w": spec}}}, 2, "here")
    with pytest.raises(CheckpointError, match="not described"):
        check_layout({"count": 2, "tensors": {"model": {"w": spec | change}}}, 2, "here")


@pytest.mark.parametrize(
    ("rows", "start", "stop", "files"),
    [(3, 0, 6, [0, 1]), (3, 2, 3, [0]), (3, 3, 4, [1]), (3, 2, 4, [0, 1]), (3, 4, 4, []), (None, 0, 6, [None])],
)
def test_files_that_hold_rows(rows: int | None, start: int, stop: int, files: list[int | None]) -> None:
    assert holders({"rows": rows}, start, stop) == files


def test_pieces_are_joined_only_without_gap_or_overlap() -> None:
    whole, like = torch.arange(12.0).view(6, 2), torch.empty(0, 2)
    assert torch.equal(join([(3, whole[3:5]), (1, whole[1:3])], like, 1, 5, "here"), whole[1:5])
    assert len(join([], like, 3, 3, "here")) == 0
    for pieces in (
        [(1, whole[1:3]), (4, whole[4:5])],
        [(1, whole[1:4]), (3, whole[3:5])],
        [(1, whole[1:3])],
        [(1, whole[1:5].double())],
        [(1, whole[1:5, :1])],
    ):
        with pytest.raises(CheckpointError, match="expected"):
            join(pieces, like, 1, 5, "here")
