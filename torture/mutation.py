"""Hostile bytes and values: grown from sound ones by small and large changes, as a function of a draw."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Sequence
from typing import Any

NUMBERS = (0, 1, 2, 7, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
PACKINGS = ("<B", "<H", ">H", "<I", ">I", "<Q", ">Q")
PICKLE = b"\x80\x02cposix\nsystem\nX\x0c\x00\x00\x00touch canary\x85R."  # opened as one, it makes the canary
STRANGE_JSON = (b"[" * 5000, b'{"a":' * 3000, b"1" * 5000, PICKLE, b"\xef\xbb\xbf{}", b'"\\ud800"', b'{"a":1,"a":2}')
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 10**400, -(10**30), 2**63, 1e308, float("nan"), float("inf"), -0.0, "", " ", "\0",
    "../../etc/passwd", "/dev/zero", "\ud800", "é" * 200, "x" * 100_000, "__class__", "${HOME}", "{{7*7}}",
    "$(touch canary)",
    "!!python/object/apply:os.system ['touch canary']", "<script>alert(1)</script>", [], {}, [[]], [None], {"": None},
    {"__proto__": 1}, [1] * 2000, {"a": {"a": {"a": {"a": 1}}}}, "1e-4", "NaN", "0x10", "1_000", "true", "2026-11-16",
)  # fmt: skip


def mutate(content: bytes, corpus: Sequence[bytes], draw: random.Random) -> bytes:
    """One to eight changes of any kind."""
    changed = bytearray(content)
    for _ in range(1 + min(int(draw.expovariate(0.6)), 7)):
        _change(changed, corpus, draw)
    return bytes(changed)


def _change(content: bytearray, corpus: Sequence[bytes], draw: random.Random) -> None:
    kind, size = draw.randrange(9), len(content)
    place = draw.randrange(size) if size else 0
    # Half of the changes fall on the head of the file, where sizes and kinds stand.
    place = min(place, int(draw.expovariate(1 / 40))) if draw.random() < 0.5 else place
    length = 1 + int(draw.expovariate(1 / 12))
    if kind == 0 and size:
        content[place] ^= 1 << draw.randrange(8)
    elif kind == 1 and size:
        content[place] = draw.randrange(256)
    elif kind == 2:
        packing = draw.choice(PACKINGS)
        number = draw.choice(NUMBERS) & (256 ** struct.calcsize(packing) - 1)
        content[place : place + struct.calcsize(packing)] = struct.pack(packing, number)
    elif kind == 3:
        del content[place : place + length]
    elif kind == 4:
        content[place:place] = draw.randbytes(length)
    elif kind == 5:
        content[place:place] = content[place : place + length] * draw.choice([1, 2, 50])
    elif kind == 6:
        del content[draw.randrange(size + 1) :]
    elif kind == 7:
        other = draw.choice(corpus)
        cut = draw.randrange(len(other) + 1)
        content[place:] = other[cut:]
    else:
        content[place : place + length] = bytes([draw.choice([0, 255, 65])]) * length


def hostile(draw: random.Random) -> Any:
    """A value of one's own: one that was changed must not be drawn again."""
    return copy.deepcopy(draw.choice(VALUES))


def spoil(tree: Any, draw: random.Random) -> Any:
    """A copy of plain data with one to four places changed, left out, added or exchanged."""
    spoilt = copy.deepcopy(tree)
    for _ in range(1 + min(int(draw.expovariate(0.8)), 3)):
        spoilt = _spoil_once(spoilt, draw)
    return spoilt


def _spoil_once(tree: Any, draw: random.Random) -> Any:
    if draw.random() < 0.02 or not isinstance(tree, dict | list) or not tree:
        return hostile(draw)
    here = tree
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = draw.choice(keys)
        inner = here[key]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.8:
            here = inner
            continue
        break
    deed = draw.randrange(6)
    if deed == 0:
        del here[key]
    elif deed == 1 and isinstance(here, dict):
        here[draw.choice(["", "a", "step ", "__class__", "\0", "x" * 300])] = hostile(draw)
    elif deed == 2:
        here[key] = copy.deepcopy(here[draw.choice(keys)])
    elif deed == 3 and isinstance(inner, int) and not isinstance(inner, bool):
        here[key] = draw.choice([inner + 1, -inner, inner * 2**40, str(inner), bool(inner)])
    else:
        here[key] = hostile(draw)
    return tree


def spell(tree: Any, draw: random.Random) -> bytes:
    """As JSON, now and then as no JSON that a careful program would write."""
    text = json.dumps(tree).encode("utf-8", "surrogatepass")
    if draw.random() < 0.1:
        return mutate(text, [text, *STRANGE_JSON], draw)
    return text
