from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pytest
import safetensors.torch
import torch
from attacks import ATTACKS, content
from moments import same
from torch import Tensor

from safelight import files
from safelight.checkpoints import tensorfile
from safelight.checkpoints.tensorfile import LARGEST_HEADER, lay_out, parse
from safelight.errors import CheckpointError

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


def everything() -> dict[str, Tensor]:
    tensors = {str(dtype): torch.arange(7).to(dtype) for dtype in DTYPES}
    return tensors | {
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "needs grad": torch.ones(2, requires_grad=True),
        "not finite": torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0]),
        "ünï/../../code": torch.ones(1),
    }


def test_every_dtype_comes_back_to_the_bit() -> None:
    tensors = everything()
    loaded = parse(content(tensors), "here")
    assert loaded.keys() == tensors.keys()
    assert all(same(loaded[name], tensors[name]) for name in tensors)
    loaded["scalar"] += 1  # the memory is ours


def test_other_tools_read_the_file(tmp_path: Path) -> None:
    tensors = everything()
    (tmp_path / "x.safetensors").write_bytes(content(tensors))
    with safetensors.safe_open(tmp_path / "x.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert all(same(file.get_tensor(name), tensors[name]) for name in tensors)


def test_same_tensors_give_same_bytes_aligned() -> None:
    tensors = everything()
    forward, backward = content(tensors), content(dict(reversed(tensors.items())))
    assert forward == backward
    length = int.from_bytes(forward[:8], "little")
    assert length % 8 == 0
    header = json.loads(forward[8 : 8 + length])
    for name, tensor in tensors.items():
        assert header[name]["data_offsets"][0] % tensor.element_size() == 0
    assert len(forward) == lay_out(tensors, "here").size


def test_large_tensors_are_streamed_in_chunks_of_their_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorfile, "CHUNK", 1000)
    tensor = torch.arange(5000, dtype=torch.float32)
    layout = lay_out({"a": tensor}, "here")
    chunks = list(layout.chunks())[1:]
    assert [chunk.nbytes for chunk in chunks] == [1000] * 20
    tensor[0] = 9.0
    assert bytes(chunks[0][:4]) == torch.tensor([9.0]).numpy().tobytes()


def test_sha256_of_the_stream_is_that_of_the_file(tmp_path: Path) -> None:
    layout = lay_out(everything(), "here")
    digest = files.write_durably(tmp_path / "x", layout.chunks(), layout.size)
    assert digest == hashlib.sha256((tmp_path / "x").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"__metadata__": torch.ones(1)}, "cannot be named"),
        ({"a": torch.ones(1, dtype=torch.complex128)}, "complex128, which is not among F64"),
        ({"a": torch.ones(2, 2).to_sparse()}, "dense clone"),
        ({"a": torch.ones(1, device="meta")}, "on meta"),
        ({"x" * (LARGEST_HEADER + 1): torch.ones(1)}, "Split them"),
    ],
)
def test_what_cannot_be_written_is_refused(tensors: dict[str, Tensor], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        lay_out(tensors, "here")


@pytest.mark.parametrize(("raw", "words"), ATTACKS.values(), ids=ATTACKS.keys())
def test_attacks_are_refused_in_words(raw: bytes, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        parse(raw, "here")


@pytest.mark.parametrize("name", ["../../x", "__class__", "/etc/passwd", "a" * 10_000])
def test_odd_names_are_only_names(name: str) -> None:
    assert list(parse(content({name: torch.ones(1)}), "here")) == [name]


def test_cut_at_every_byte_is_refused() -> None:
    whole = content({"weight": torch.ones(5), "bias": torch.ones(3, dtype=torch.uint8)})
    for length in range(len(whole)):
        with pytest.raises(CheckpointError):
            parse(whole[:length], "here")


def test_flipped_bits_never_escape_as_another_error() -> None:
    whole = content({"weight": torch.ones(5), "bias": torch.ones(3, dtype=torch.uint8)})
    draw = random.Random(0)
    for _ in range(1000):
        broken = bytearray(whole)
        for _ in range(draw.choice((1, 1, 4))):
            broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        try:
            parse(bytes(broken), "here")
        except CheckpointError:
            continue


def test_a_header_whose_length_looks_like_a_pickle_is_read() -> None:
    for size in range(400, 700):
        raw = content({"x" * size: torch.ones(1)})
        if raw[:2] == b"\x80\x02":
            assert len(parse(raw, "here")) == 1
            return
    pytest.fail("no header of 640 bytes was made")
