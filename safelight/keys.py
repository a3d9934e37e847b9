"""Randomness without state: every draw is a function of (seed, stream, position)."""

from __future__ import annotations

import hashlib

STREAMS = (
    "order", "flip", "crop", "jitter", "balance", "shapes",
    "timestep", "noise", "label_drop", "dropout", "init", "sample", "probe", "rescore", "evaluate", "gaussian",
    "replacement", "sampler",
)  # fmt: skip


def derive_seed(seed: int, stream: str, *position: int) -> int:
    """A 63-bit seed for one draw. Streams never meet, whatever their positions."""
    assert stream in STREAMS, f"unknown stream {stream!r}"
    words = "/".join((str(seed), stream, *map(str, position)))
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little") >> 1
