"""The safetensors format: streamed out without a second copy, read back from bytes already checked."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from safelight.errors import CheckpointError
from safelight.files import CHUNK

LARGEST_HEADER = 16 << 20  # about 150,000 tensors; the format itself allows 100 MB
_METADATA = "__metadata__"
NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
KINDS = {word: kind for kind, word in NAMES.items()}


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file before it is written: some bytes, and the memory of tensors after them."""

    header: bytes
    tensors: tuple[Tensor, ...]
    size: int

    def chunks(self) -> Iterator[memoryview]:
        yield memoryview(self.header)
        for tensor in self.tensors:
            if tensor.numel():
                raw = tensor.reshape(-1).view(torch.uint8).numpy().data
                for start in range(0, raw.nbytes, CHUNK):
                    yield raw[start : start + CHUNK]


def lay_out(tensors: Mapping[str, Tensor], where: str) -> FileContent:
    """Wide dtypes first and then by name, as safetensors itself does: every tensor starts aligned, and the same tensors
    give the same bytes."""
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, Any] = {_METADATA: {"format": "pt"}}
    end = 0
    for name, tensor in ordered:
        _check_writable(name, tensor, where)
        start, end = end, end + tensor.numel() * tensor.element_size()
        shape = list(tensor.shape)
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > LARGEST_HEADER:
        raise CheckpointError(
            f"{where}: {len(tensors):,} tensors need a header of {len(text):,} bytes; at most "
            f"{LARGEST_HEADER:,} can be loaded again. Split them over several files."
        )
    head = len(text).to_bytes(8, "little") + text
    return FileContent(head, tuple(tensor.detach() for _, tensor in ordered), len(head) + end)


def _check_writable(name: str, tensor: Tensor, where: str) -> None:
    if name == _METADATA:
        raise CheckpointError(f"{where}: a tensor cannot be named {_METADATA}; the format needs that name.")
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise CheckpointError(
            f"{where}: tensor {name} is {tensor.layout} on {tensor.device}; a dense clone in host memory was expected."
        )
    if tensor.dtype not in NAMES:
        raise CheckpointError(
            f"{where}: tensor {name} is {tensor.dtype}, which is not among {', '.join(NAMES.values())}. "
            "Convert it before saving."
        )


def parse(content: bytes, where: str) -> dict[str, Tensor]:
    """The tensors of a file whose bytes are already in hand. Nothing here can run code from the file."""
    return pick(iter([content]), len(content), lambda _, shape: (0, shape[0] if shape else 1), where)


def _read_header(content: bytes, size: int) -> tuple[Any, int]:
    """The header and where it ends. `content`: at least the header of a file of so many bytes."""
    length = int.from_bytes(content[:8], "little")
    if size < 10 or length > size - 8:
        raise ValueError(f"its header claims {length:,} bytes and the file has {size:,}")
    if length > LARGEST_HEADER:
        raise ValueError(f"its header has {length:,} bytes; at most {LARGEST_HEADER:,} are read")
    end = 8 + length
    return json.loads(content[8:end], object_pairs_hook=unique), end  # the parser takes the last of two equal names


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON objects in which every key comes once."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError(f"a key comes twice among {sorted(key for key, _ in pairs)[:8]}")
    return result


def _complaint(content: bytes, error: Exception) -> str:
    if content.startswith(b"PK\x03\x04") or (content[:1] == b"\x80" and content[1:2] <= b"\x05"):
        return (
            "is a pickle (torch.save) and not a safetensors file. A pickle can run any code when opened, "
            "so it never is. If you trust its source, convert it yourself: "
            "safetensors.torch.save_file(torch.load(FILE, weights_only=True), 'model.safetensors')."
        )
    return f"is not a whole safetensors file: {error}."


Choice = Callable[[str, list[int]], tuple[int, int] | None]
"""Which rows of a tensor are wanted, by its name and shape; None: nothing of it. All of a tensor that has no rows
is (0, 1)."""


def pick(chunks: Iterator[bytes], size: int, choose: Choice, where: str) -> dict[str, Tensor]:
    """Rows of the tensors of a file of this size, which comes piece by piece; nothing else of it is kept."""
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= 8 and len(head) >= 8 + min(int.from_bytes(head[:8], "little"), LARGEST_HEADER):
            break
    try:
        header, length = _read_header(head, size)
        _check_tiled(header, size - length)
        wanted = sorted(_wanted(header, size - length, choose), key=lambda want: want.start)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:  # RecursionError among them
        raise CheckpointError(f"{where} {_complaint(head, error)}") from error
    place, first = 0, 0
    for chunk in itertools.chain([head[length:]], chunks):
        while first < len(wanted) and wanted[first].stop <= place:
            first += 1
        for number in range(first, len(wanted)):
            if wanted[number].start >= place + len(chunk):
                break
            wanted[number].take(place, chunk)
        place += len(chunk)
    return {want.name: want.tensor for want in wanted}


def _check_tiled(header: Any, size: int) -> None:
    """Tensors lie one after the other and fill the file, as the format demands."""
    end = 0
    for start, stop in sorted(each["data_offsets"] for name, each in header.items() if name != _METADATA):
        if start != end or stop < start:
            raise ValueError(f"its tensors overlap or leave a gap at byte {min(start, end):,}")
        end = stop
    if end != size:
        raise ValueError(f"its tensors take {end:,} bytes of {size:,}")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Some bytes of the data of a file, on their way into a tensor."""

    name: str
    tensor: Tensor
    start: int

    @property
    def stop(self) -> int:
        return self.start + self.tensor.nbytes

    def take(self, place: int, chunk: bytes) -> None:
        first, last = max(self.start, place), min(self.start + self.tensor.nbytes, place + len(chunk))
        if first < last:
            raw = self.tensor.reshape(-1).view(torch.uint8).numpy().data
            raw[first - self.start : last - self.start] = chunk[first - place : last - place]


def _wanted(header: Any, size: int, choose: Choice) -> Iterator[_Wanted]:
    for name, each in header.items():
        if name == _METADATA:
            continue
        shape, (start, stop), kind = each["shape"], each["data_offsets"], KINDS[each["dtype"]]
        if not all(isinstance(n, int) and 0 <= n <= size for n in (*shape, start, stop)):
            raise ValueError(f"{name!r:.80} has a shape or a place that cannot be")
        bytes_each = math.prod(shape[1:]) * kind.itemsize
        if stop - start != (shape[0] if shape else 1) * bytes_each or stop > size:
            raise ValueError(f"{name!r:.80} takes {stop - start:,} bytes, which its shape does not")
        if (rows := choose(name, shape)) is not None:
            first, last = rows
            held = torch.empty([last - first, *shape[1:]] if shape else [], dtype=kind)
            yield _Wanted(name, held, start + first * bytes_each)
