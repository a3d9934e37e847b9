"""Malformed safetensors files, by the reader of checkpoints."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import torch

from safelight.checkpoints import tensorfile
from torture.fuzz_child import Reader, watch
from torture.mutation import PICKLE, hostile, mutate, spell, spoil
from torture.scenario import Scenario, Trial

TYPES = ("F64", "F32", "F16", "BF16", "F8_E4M3", "I64", "I32", "I8", "U8", "BOOL", "F4", "C64", "f32", "", None, 4)
LENGTHS = (0, 1, 7, 8, 100, 2**31, 2**32, 2**53, 2**63, 2**64 - 1)


def corpus() -> list[bytes]:
    groups: list[dict[str, torch.Tensor]] = [
        {"weight": torch.arange(6.0).reshape(3, 2), "bias": torch.ones(2)},
        {"a/b": torch.tensor(1.0), "c": torch.zeros(0), "d": torch.ones(3, dtype=torch.bfloat16)},
        {f"layer.{n}": torch.full((2, 2), n, dtype=torch.int32) for n in range(8)} | {"flag": torch.tensor([True])},
    ]
    return [b"".join(tensorfile.lay_out(group, "corpus").chunks()) for group in groups]


def grow(draw: random.Random) -> bytes:
    """A header of the right kind that says wrong things about the bytes behind it."""
    header: dict[str, Any] = {}
    for number in range(draw.randint(0, 5)):
        start = draw.choice([0, 4, 8, 24, -4, 2**62])
        entry = {
            "dtype": draw.choice(TYPES),
            "shape": draw.choice([[], [2], [3, 2], [0], [2**32, 2**32], [-1], [1.5], "2", [None], [1] * 500]),
            "data_offsets": draw.choice([[start, start + 24], [start, start], [24, 0], [start], [0, 2**63], "0", None]),
        }
        name = draw.choice([f"t{number}", "../x", "", "__class__", "\0", "t0", "x" * 1000])
        header[name] = entry if draw.random() < 0.9 else hostile(draw)
    if draw.random() < 0.3:
        header["__metadata__"] = draw.choice([{"format": "pt"}, {"a": 1}, None, [], {"a": {"b": "c"}}])
    text = spell(header, draw)
    length = len(text) if draw.random() < 0.8 else draw.choice(LENGTHS)
    return length.to_bytes(8, "little") + text + draw.randbytes(draw.choice([0, 4, 24, 48]))


def respell(content: bytes, draw: random.Random) -> bytes:
    """The header of a sound file with a few wrong values, and its length right again."""
    length = int.from_bytes(content[:8], "little")
    text = spell(spoil(json.loads(content[8 : 8 + length]), draw), draw)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def make(draw: random.Random, sound: list[bytes]) -> bytes:
    kind = draw.random()
    if kind < 0.3:
        return grow(draw)
    if kind < 0.5:
        return respell(draw.choice(sound), draw)
    if kind < 0.53:
        return draw.choice([PICKLE, b"PK\x03\x04" + PICKLE, b"", b"\xff" * 8, (3).to_bytes(8, "little") + b"{}}"])
    return mutate(draw.choice(sound), sound, draw)


def open_reader(trial: Trial) -> Reader:
    sound = corpus()
    for content in sound:
        tensorfile.parse(content, "sound")
    return Reader(functools.partial(make, sound=sound), lambda content: tensorfile.parse(content, "model.safetensors"))


FUZZ_TENSORS = Scenario(
    "fuzz: tensors",
    "Malformed safetensors, by the reader of checkpoints.",
    "inputs", 80_000, 80_000, 1000, 20_000, lambda trial: watch(trial, open_reader),
)  # fmt: skip
