from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import pytest
import torch

from safelight.checkpoints.state_tree import join, split
from safelight.errors import CheckpointError


def again(value: Any) -> Any:
    tree, tensors = split(value, "part")
    return join(json.loads(json.dumps(tree, sort_keys=True)), tensors, "part")


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor | np.ndarray):
        return (
            type(one) is type(other) and one.dtype == other.dtype and torch.equal(*map(torch.as_tensor, (one, other)))
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or (one != one and other != other))


VALUES: dict[str, Any] = {
    "numbers": [1, -2.5, math.inf, math.nan, True, None, 2**100, 1e-320, "text", "$"],
    "tuples": {"betas": (0.9, 0.999), "nested": ((), [(1,)])},
    "keys": {0: "a", 1.5: "b", None: "c", (1, "x"): "d", "1": "e", True: "f"},
    "dollar": {"$": "tuple", "items": [1]},
    "empty": {"a": {}, "b": [], "c": ()},
    "tensor": torch.arange(6.0).reshape(2, 3),
    "tensors": {"w": torch.ones(2), "b": torch.tensor(3), "half": torch.ones(2).bfloat16(), "none": torch.zeros(0, 4)},
    "clash": {"a/b": torch.ones(1), "a": {"b": torch.zeros(1)}, "": torch.ones(3)},
    "strided": {"t": torch.arange(6).reshape(2, 3).t()},
    "arrays": {"a": np.arange(4, dtype=np.uint16), "b": np.zeros((0, 2)), "c": np.array(1 + 2j)},
    "bytes": [b"", b"\x80\x04pickle"],
    "optimizer": {
        "state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.ones(2)}},
        "param_groups": [{"params": [0]}],
    },
}


@pytest.mark.parametrize("name", VALUES)
def test_what_is_split_is_joined_as_it_was(name: str) -> None:
    assert same(VALUES[name], again(VALUES[name]))


def test_what_only_looks_like_a_dict_or_number() -> None:
    assert again(OrderedDict(b=1, a=2)) == {"a": 2, "b": 1}
    assert list(again(OrderedDict(b=torch.ones(1), a=torch.ones(1)))) == ["b", "a"], "tensors keep their order"
    counter = again(Counter({30: 1, 80: 2}))
    assert isinstance(counter, Counter)
    assert counter[80] == 2
    assert again({"lr": np.float64(0.1), "n": np.int32(3), "b": np.bool_(True)}) == {"lr": 0.1, "n": 3, "b": True}
    assert again(torch.Size([2, 3])) == (2, 3)


class Holder:
    pass


SELF: list[Any] = []
SELF.append(SELF)

REFUSED: dict[str, tuple[Any, str]] = {
    "object": ({"a": [Holder()]}, r"part, a/0, is a Holder, which cannot be stored without a pickle"),
    "function": ({"f": len}, "part, f, is a builtin_function_or_method"),
    "set": ({"s": {1}}, "is a set"),
    "complex": ({"c": 1j}, "is a complex"),
    "objects": ({"a": np.array([Holder()])}, "is an array of object"),
    "sparse": ({"a": torch.eye(2).to_sparse()}, "part/a is torch.sparse_coo"),
    "meta": ({"a": torch.empty(2, device="meta")}, "on meta"),
    "dtype": ({"a": torch.ones(2, dtype=torch.complex64)}, "is torch.complex64, which is not among F64"),
    "key": ({torch.ones(1): 1}, "a Tensor cannot be a key"),
    "itself": (SELF, "holds itself"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_stored_is_refused_in_words(name: str) -> None:
    value, words = REFUSED[name]
    with pytest.raises(CheckpointError, match=words):
        split(value, "part")


@pytest.mark.parametrize(
    "tree",
    [
        {"$": "object"},
        {"$": "tensor", "name": "gone"},
        {"$": "tensors", "under": "x"},
        {"$": "tuple"},
        {"$": "pairs", "pairs": [[[1], 2]]},
        {"$": "array", "name": "t", "dtype": "O", "shape": [1]},
        {"$": "array", "name": "t", "dtype": "<f8", "shape": [7]},
        {"$": "array", "name": "t", "dtype": "os.system", "shape": [1]},
    ],
    ids=str,
)
def test_a_tree_that_is_not_ours_ends_in_words(tree: Any) -> None:
    with pytest.raises(CheckpointError, match="cannot be put together"):
        join(tree, {"t": torch.zeros(8, dtype=torch.uint8)}, "part")
