"""The state of any object as JSON and tensors, and back: what torch.save would pickle, without a pickle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from safelight.checkpoints.tensorfile import NAMES
from safelight.errors import CheckpointError

KIND = "$"  # marks an object of JSON that stands for something JSON does not have
_NUMBERS = "biufc"  # kinds of numpy arrays that are stored: nothing that holds objects
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, RecursionError)


def split(state: Any, where: str) -> tuple[Any, dict[str, Tensor]]:
    """What is JSON, and the tensors by name, in host memory. `where` names the state in messages."""
    tensors: dict[str, Tensor] = {}
    try:
        return _encode(state, "", tensors, where), tensors
    except RecursionError:
        raise CheckpointError(f"{where} is nested too deeply, or holds itself.") from None


def join(tree: Any, tensors: Mapping[str, Tensor], where: str) -> Any:
    """The inverse of `split`."""
    try:
        return _decode(tree, tensors)
    except _MALFORMED as error:
        raise CheckpointError(f"{where} cannot be put together: {type(error).__name__} {error}.") from error


def _encode(value: Any, path: str, tensors: dict[str, Tensor], where: str) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item()
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, Tensor):
        return {KIND: "tensor", "name": _keep(_on_host(value, f"{where}/{path}"), path, tensors)}
    if isinstance(value, bytes | bytearray | np.ndarray):
        return _encode_raw(value, path, tensors, where)
    if isinstance(value, list | tuple):
        items = [_encode(each, _under(path, number), tensors, where) for number, each in enumerate(value)]
        return items if isinstance(value, list) else {KIND: "tuple", "items": items}
    if isinstance(value, Mapping):
        return _encode_mapping(value, path, tensors, where)
    raise CheckpointError(
        f"{where}{f', {path},' if path else ''} is a {type(value).__name__}, which cannot be stored without a pickle: "
        "tensors, numbers, text, lists and dicts can. Leave it out, or store what it is made of."
    )


def _encode_mapping(value: Mapping[Any, Any], path: str, tensors: dict[str, Tensor], where: str) -> Any:
    plain = all(type(key) is str for key in value) and KIND not in value
    names = [_under(path, key) for key in value]
    if plain and value and all(isinstance(each, Tensor) for each in value.values()) and not tensors.keys() & set(names):
        for name, each in zip(names, value.values(), strict=True):
            _keep(_on_host(each, f"{where}/{name}"), name, tensors)
        return {KIND: "tensors", "under": path, "keys": list(value)}
    if plain and not isinstance(value, Counter):
        return {key: _encode(each, _under(path, key), tensors, where) for key, each in value.items()}
    pairs = [[_encode_key(k, path, where), _encode(v, _under(path, k), tensors, where)] for k, v in value.items()]
    return {KIND: "counter" if isinstance(value, Counter) else "pairs", "pairs": pairs}


def _encode_key(key: Any, path: str, where: str) -> Any:
    if isinstance(key, tuple):
        return {KIND: "tuple", "items": [_encode_key(each, path, where) for each in key]}
    if key is None or isinstance(key, str | int | float):
        return _encode(key, path, {}, where)
    raise CheckpointError(
        f"{where}, {path or 'its'} keys: a {type(key).__name__} cannot be a key; text or numbers can."
    )


def _encode_raw(value: Any, path: str, tensors: dict[str, Tensor], where: str) -> Any:
    """Bytes and arrays as their bytes: numpy has kinds of numbers that torch does not."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _NUMBERS:
            raise CheckpointError(f"{where}, {path}, is an array of {value.dtype}; arrays of numbers can be stored.")
        about = {KIND: "array", "dtype": value.dtype.str, "shape": list(value.shape)}
    else:
        about = {KIND: "bytes"}
    raw = value.tobytes() if isinstance(value, np.ndarray) else bytes(value)
    return about | {
        "name": _keep(torch.frombuffer(bytearray(raw) or bytearray(1), dtype=torch.uint8)[: len(raw)], path, tensors)
    }


def _under(path: str, key: Any) -> str:
    return f"{path}/{key}" if path else str(key)


def _keep(tensor: Tensor, path: str, tensors: dict[str, Tensor]) -> str:
    """Under its path, or a name beside it where that is taken."""
    name, number = path or "value", 1
    while name in tensors:
        number += 1
        name = f"{path}#{number}"
    tensors[name] = tensor
    return name


def _on_host(tensor: Tensor, where: str) -> Tensor:
    kind = type(tensor).__name__
    if kind == "DTensor" or tensor.device.type == "meta" or tensor.layout != torch.strided:
        what = "sharded over processes" if kind == "DTensor" else f"{tensor.layout} on {tensor.device}"
        raise CheckpointError(f"{where} is {what}; a whole, dense tensor can be stored.")
    if tensor.dtype not in NAMES:
        raise CheckpointError(f"{where} is {tensor.dtype}, which is not among {', '.join(NAMES.values())}. Convert it.")
    return tensor.detach().resolve_neg().cpu().contiguous()


def _decode(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(tree, list):
        return [_decode(each, tensors) for each in tree]
    if not isinstance(tree, dict):
        return tree
    match tree.get(KIND):
        case None:
            return {key: _decode(each, tensors) for key, each in tree.items()}
        case "tensor":
            return tensors[tree["name"]]
        case "tensors":
            return {key: tensors[_under(tree["under"], key)] for key in tree["keys"]}
        case "tuple":
            return tuple(_decode(each, tensors) for each in tree["items"])
        case "pairs":
            return {_decode(key, tensors): _decode(each, tensors) for key, each in tree["pairs"]}
        case "counter":
            return Counter({_decode(key, tensors): _decode(each, tensors) for key, each in tree["pairs"]})
        case "bytes":
            return tensors[tree["name"]].numpy().tobytes()
        case "array":
            return _decode_array(tree, tensors[tree["name"]])
        case other:
            raise ValueError(f"{other!r:.40} is no kind of value that is known")


def _decode_array(tree: Mapping[str, Any], raw: Tensor) -> np.ndarray:
    kind = np.dtype(str(tree["dtype"]))
    if kind.kind not in _NUMBERS:
        raise ValueError(f"an array of {kind}")
    return np.frombuffer(raw.numpy().tobytes(), kind).reshape(tree["shape"]).copy()
