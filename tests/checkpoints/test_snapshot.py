"""What may be in a checkpoint: all that comes back as it went, and nothing else."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from moments import NAN, QUICK, assert_equal, poisoned, snapshot

from safelight.checkpoints.reader import load
from safelight.checkpoints.snapshot import Snapshot
from safelight.checkpoints.writer import write
from safelight.errors import CheckpointError


def test_same_snapshot_gives_same_bytes(tmp_path: Path) -> None:
    first, second = (write(tmp_path / name, snapshot(7), disk=QUICK) for name in "ab")
    for file in first.iterdir():
        assert file.read_bytes() == (second / file.name).read_bytes()


FLOATS = [0.1, 1 / 3, -0.0, 5e-324, 1.7976931348623157e308, NAN, math.inf, -math.inf, 2.0**-1074, 1e22]


def test_every_float_of_the_state_comes_back(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    many = draw.integers(0, 2**64, 2000, dtype=np.uint64).view(np.float64).tolist()
    path = write(tmp_path, snapshot(1, values=FLOATS + many, numpy=np.float64(0.1), big=2**200, none=None), disk=QUICK)
    state = load(path).state
    assert np.array_equal(np.array(state["values"]), np.array(FLOATS + many), equal_nan=True)
    assert math.copysign(1, state["values"][2]) == -1
    assert (state["numpy"], state["big"], state["none"]) == (0.1, 2**200, None)


def test_further_files_and_empty_ones_are_kept(tmp_path: Path) -> None:
    moment = snapshot(1)
    moment.tensors["ema-0.05"] = {"a": torch.ones(2, dtype=torch.bfloat16)}
    moment.tensors["journal"] = {}
    assert_equal(load(write(tmp_path, moment, disk=QUICK)), moment)


REFUSED: dict[str, tuple[Snapshot, str]] = {
    "NaN in the model": (poisoned("model", NAN), "model tensor weight holds 1 NaN or Inf among 5"),
    "Inf in the EMA": (poisoned("ema", math.inf), "ema tensor weight holds 1"),
    "-Inf in half precision": (poisoned("model", -math.inf, torch.bfloat16), "holds 1"),
    "NaN in eight bits": (poisoned("model", NAN, torch.float8_e5m2), "holds 1"),
    "negative step": (snapshot(-1), "a step is a number"),
    "key that is no text": (snapshot(1, table={1: 2}), "the key 1 is a int, not text"),
    "tensor in the state": (snapshot(1, x=[torch.ones(1)]), r"state.x\[0\] is a Tensor"),
    "integer that JSON cannot read": (snapshot(1, x=10**5000), "cannot be written as JSON"),
    "state too large": (snapshot(1, x="x" * (9 << 20)), "belong among the tensors"),
    "stem with a slash": (Snapshot(1, {"../x": {}}, {}, {}), "not a plain lower-case"),
    "stem in capitals": (Snapshot(1, {"Model": {}}, {}, {}), "not a plain lower-case"),
    "environment that is no JSON": (
        Snapshot(1, {}, {}, {"device": torch.device("cpu")}),
        "environment.device",
    ),
}


@pytest.mark.parametrize(("moment", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path, moment: Snapshot, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        write(tmp_path / "checkpoints", moment, disk=QUICK)
    assert not (tmp_path / "checkpoints").exists()


def test_a_state_that_holds_itself_is_refused(tmp_path: Path) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(CheckpointError, match="cannot be written"):
        write(tmp_path, snapshot(1, loop=loop), disk=QUICK)


@pytest.mark.parametrize(
    "moment",
    [
        poisoned("model", NAN, allow_nonfinite=True),
        poisoned("optimizer", NAN),
        poisoned("model", 3e38),
        poisoned("model", 7, torch.int64),
    ],
)
def test_near_misses_are_saved(tmp_path: Path, moment: Snapshot) -> None:
    assert_equal(load(write(tmp_path, moment, disk=QUICK)), moment)
