"""Tensors out of files that torch wrote, and nothing else: what is in a file is read, never run.

A file of torch.save is a pickle, a program that may call anything when it is loaded. Here only the handful of
instructions that build tensors is understood; every other one is refused. Neither pickle, torch.load nor torch.jit is
called, so the code inside a TorchScript archive is never even parsed.
"""

from __future__ import annotations

import io
import math
import pickletools
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import safetensors.torch
import torch
from torch import Tensor

from safelight.errors import CheckpointError


def read_tensors(content: bytes, where: str) -> dict[str, Tensor]:
    """The tensors of a file of safetensors, torch.save (old or new) or torch.jit.save, by their dotted names."""
    try:
        if content.startswith(b"PK\x03\x04"):
            return _zipped(content)
        if content.startswith(b"\x80"):
            return _streamed(content)
        return safetensors.torch.load(content)
    except MemoryError:
        raise
    except Exception as error:  # damaged bytes can make any parser raise nearly anything
        raise CheckpointError(f"{where} ({len(content):,} bytes) is no whole file of tensors: {error}.") from error


class _Scripted(dict[Any, Any]):
    """A module of TorchScript: its attributes, in the order in which they were made."""


@dataclass(frozen=True, slots=True)
class _Name:
    """What a pickle wants to be imported, which it never is."""

    dotted: str


@dataclass(frozen=True, slots=True)
class _Slice:
    """A tensor that points into one of the file's storages."""

    dtype: torch.dtype
    storage: str
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


_DTYPES = {
    "torch.DoubleStorage": torch.float64,
    "torch.FloatStorage": torch.float32,
    "torch.HalfStorage": torch.float16,
    "torch.BFloat16Storage": torch.bfloat16,
    "torch.LongStorage": torch.int64,
    "torch.IntStorage": torch.int32,
}
_PLAIN = {"BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}


def _zipped(content: bytes) -> dict[str, Tensor]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        [index] = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
        top = index.removesuffix("data.pkl")
        read = [e for e in archive.infolist() if e.filename == index or e.filename.startswith(f"{top}data/")]
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in read):
            raise ValueError("its tensors are compressed, which torch never does")  # and might unpack to anything
        if f"{top}byteorder" in archive.namelist() and archive.read(f"{top}byteorder") != b"little":
            raise ValueError("its numbers are big-endian")
        found = _flatten(_follow(io.BytesIO(archive.read(index))))
        storages = {name: archive.read(f"{top}data/{name}") for name in {part.storage for part in found.values()}}
    return _cut(found, storages)


def _streamed(content: bytes) -> dict[str, Tensor]:
    """torch.save before 1.6: magic number, version, sizes of types, index, names of storages, storages."""
    stream = io.BytesIO(content)
    for _ in range(3):
        _follow(stream)
    found = _flatten(_follow(stream))
    names: Any = _follow(stream)
    width = {part.storage: part.dtype.itemsize for part in found.values()}
    storages = {}
    for name in names:
        count = int.from_bytes(stream.read(8), "little")
        storages[name] = stream.read(count * width[name])
    return _cut(found, storages)


def _follow(stream: IO[bytes]) -> object:
    """What a pickle would build, with stand-ins for everything that it would import or call."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def above_mark() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    for opcode, value, _ in pickletools.genops(stream):
        match opcode.name:
            case "PROTO" | "FRAME":
                pass
            case "STOP":
                return stack.pop()
            case "MARK":
                marks.append(len(stack))
            case name if name in _PLAIN:
                stack.append(value)
            case name if name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            case name if name in _EMPTY:
                stack.append(_EMPTY[name]())
            case "GLOBAL":
                stack.append(_Name(str(value).replace(" ", ".")))
            case "BINPUT" | "LONG_BINPUT":
                memo[int(value or 0)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[int(value or 0)])
            case "TUPLE":
                stack.append(tuple(above_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3" as name:
                count = int(name[-1])
                stack[-count:] = [tuple(stack[-count:])]
            case "APPEND" | "APPENDS" as name:
                items = above_mark() if name == "APPENDS" else [stack.pop()]
                stack[-1].extend(items)
            case "SETITEM" | "SETITEMS" as name:
                items = above_mark() if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
                stack[-1].update(zip(items[::2], items[1::2], strict=True))
            case "BINPERSID":
                pass  # the description of a storage stands for it
            case "REDUCE":
                arguments = stack.pop()
                stack.append(_stand_in(stack.pop(), arguments))
            case "NEWOBJ":
                stack.pop()
                stack.append(_scripted(stack.pop()))
            case "BUILD":
                state, target = stack.pop(), stack[-1]
                if isinstance(target, _Scripted):  # the state of an OrderedDict is torch's bookkeeping
                    target.update(state)
            case name:
                raise ValueError(f"it holds the instruction {name}, which tensors do not need")
    raise ValueError("it ends too early")


def _stand_in(function: Any, arguments: tuple[Any, ...]) -> Any:
    match function:
        case _Name("torch._utils._rebuild_tensor_v2"):
            (_, kind, storage, *_), offset, size, stride, *_ = arguments
            return _Slice(_DTYPES[kind.dotted], storage, offset, size, stride)
        case _Name("torch._utils._rebuild_parameter") | _Name("torch.jit._pickle.build_intlist"):
            return arguments[0]
        case _Name("collections.OrderedDict"):
            return {}
        case _:
            raise ValueError(f"it wants to call {getattr(function, 'dotted', function)}, which is never done")


def _scripted(kind: Any) -> _Scripted:
    if not isinstance(kind, _Name) or not kind.dotted.startswith("__torch__."):
        raise ValueError(f"it wants to make a {getattr(kind, 'dotted', kind)}, which is never done")
    return _Scripted()


def _flatten(tree: object) -> dict[str, _Slice]:
    return _flatten_into({}, tree, "", set())


def _flatten_into(found: dict[str, _Slice], tree: object, prefix: str, seen: set[int]) -> dict[str, _Slice]:
    """A table that comes again, or holds itself, is refused: a few bytes could stand for any number of tensors."""
    for name, value in tree.items() if isinstance(tree, dict) else ():
        if isinstance(value, _Slice):
            found[f"{prefix}{name}"] = value
        elif isinstance(value, dict) and value:
            if id(value) in seen:
                raise ValueError("it holds the same table twice")
            seen.add(id(value))
            _flatten_into(found, value, f"{prefix}{name}.", seen)
    return found


def _cut(found: dict[str, _Slice], storages: dict[str, bytes]) -> dict[str, Tensor]:
    if not found:
        raise ValueError("it holds no tensors")
    buffers = {name: bytearray(content) for name, content in storages.items()}
    if sum(math.prod(part.size) for part in found.values()) > sum(map(len, buffers.values())):
        raise ValueError("it names more numbers than it holds")  # a view that repeats one number without end
    # torch itself refuses a slice that reaches beyond its storage.
    return {
        name: torch.frombuffer(buffers[part.storage], dtype=part.dtype)
        .as_strided(part.size, part.stride, part.offset)
        .clone(memory_format=torch.contiguous_format)
        for name, part in found.items()
    }
