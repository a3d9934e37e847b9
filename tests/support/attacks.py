"""Tensor files that lie about themselves."""

from __future__ import annotations

import io
import json
import pickle
import zipfile

import torch
from torch import Tensor

from safelight.checkpoints.tensorfile import LARGEST_HEADER, lay_out


def content(tensors: dict[str, Tensor]) -> bytes:
    return b"".join(bytes(chunk) for chunk in lay_out(tensors, "here").chunks())


def forged(header: object, body: bytes = bytes(16)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def one(**change: object) -> bytes:
    return forged({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]} | change})


def a_pickle(protocol: int) -> bytes:
    return pickle.dumps({"weights": [1.0, 2.0]}, protocol=protocol)


def a_torch_file() -> bytes:
    buffer = io.BytesIO()
    torch.save({"a": torch.ones(2)}, buffer)
    return buffer.getvalue()


def a_polyglot() -> bytes:
    buffer = io.BytesIO(content({"a": torch.ones(4)}))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("data.pkl", a_pickle(2))
    return buffer.getvalue()


ENTRY = '{"dtype":"F32","shape":[2],"data_offsets":[%d,%d]}'


ATTACKS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "claims 0 bytes"),
    "seven bytes": (bytes(7), "claims 0 bytes"),
    "header of 0": (bytes(24), "not a whole"),
    "header of 2^63": ((1 << 63).to_bytes(8, "little") + bytes(24), "9,223,372,036,854,775,808"),
    "header longer than the file": ((100).to_bytes(8, "little") + b"{}" + bytes(24), "claims 100 bytes"),
    "header of 100 MB + 1, not there": ((100_000_001).to_bytes(8, "little") + b"{}", "100,000,001"),
    "header above our limit": (forged(b"{" + b" " * LARGEST_HEADER + b"}"), "at most 16,777,216"),
    "not JSON": (forged(b"{'a': 1}"), "not a whole"),
    "not UTF-8": (forged(b'{"\xff": 1}'), "not a whole"),
    "not an object": (forged([1, 2]), "not a whole"),
    "nested 100,000 deep": (forged(b"[" * 100_000), "not a whole"),
    "huge integer": (forged(b'{"a": ' + b"9" * 5000 + b"}"), "not a whole"),
    "twice the same name": (
        forged(f'{{"a":{ENTRY % (0, 8)},"a":{ENTRY % (8, 16)}}}'.encode()),
        "comes twice",
    ),
    "overlap": (forged(f'{{"a":{ENTRY % (0, 8)},"b":{ENTRY % (4, 12)}}}'.encode()), "not a whole"),
    "gap": (forged(f'{{"a":{ENTRY % (0, 8)},"b":{ENTRY % (12, 20)}}}'.encode(), bytes(20)), "not a whole"),
    "shape overflows": (one(shape=[2**32, 2**32, 2]), "not a whole"),
    "negative shape": (one(shape=[-4]), "not a whole"),
    "fractional shape": (one(shape=[4.5]), "not a whole"),
    "shape larger than the data": (one(shape=[5]), "not a whole"),
    "unknown dtype": (one(dtype="F1024"), "not a whole"),
    "offsets beyond the end": (one(shape=[8], data_offsets=[0, 32]), "not a whole"),
    "offsets backwards": (one(data_offsets=[16, 0]), "not a whole"),
    "trailing bytes": (content({"a": torch.ones(4)}) + b"x", "not a whole"),
    "pickle, protocol 2": (a_pickle(2), "is a pickle"),
    "pickle, protocol 5": (a_pickle(5), "is a pickle"),
    "torch.save": (a_torch_file(), "convert it yourself"),
    "zip behind a valid file": (a_polyglot(), "not a whole"),
}
