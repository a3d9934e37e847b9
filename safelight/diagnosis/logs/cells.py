"""Numbers as people and programs write them, and rows of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any

Row = Mapping[str, Any]
"""One entry of a log: by name, a number, its text, or None if it has none."""
STEP = "step of the log"
"""The step that a format has outside of its columns, such as that of a TensorBoard event."""
EMPTY = {"", "-", "--", "n/a", "na", "none", "null", "undefined", "<na>"}
WORDS = {"nan": math.nan, "inf": math.inf, "infinity": math.inf, "1.#inf": math.inf, "1.#qnan": math.nan, "∞": math.inf,
         "1.#ind": math.nan, "#num!": math.nan, "#div/0!": math.nan, "overflow": math.inf}  # fmt: skip
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
WRAPPED = re.compile(r"[A-Za-z_][\w.]*\(\s*([^,()\s]+)\s*(?:,.*)?\)")  # tensor(0.5, device='cuda:0')
ROUNDED_ZERO = re.compile(r"[-+]?0*\.00+")
"""0.00 may be 0.004; 0.0 is how Python writes a zero."""
DEPTH = 6


def number_of(cell: Any) -> float | None:
    """None if a cell is empty, no number, or so rounded that only zeros are left of it."""
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, Real):
        try:
            return float(cell)
        except OverflowError:
            return math.inf
    return _parse(cell.strip().strip("'\"").lower()) if isinstance(cell, str) else None


def _parse(text: str) -> float | None:
    if text in EMPTY or len(text) > 100:
        return None
    sign = -1.0 if text.startswith("-") else 1.0
    if (word := text.lstrip("+-")) in WORDS:
        return sign * WORDS[word]
    if wrapped := WRAPPED.fullmatch(text):
        return _parse(wrapped[1])
    if ROUNDED_ZERO.fullmatch(text):
        return None
    if "," in text:
        plain = text.replace(",", "" if THOUSANDS.fullmatch(text) and not text.startswith("0,") else ".")
        text = plain if THOUSANDS.fullmatch(text) or DECIMAL_COMMA.fullmatch(text) else text
    try:
        return float(text)
    except ValueError:
        return None


def is_rounded_zero(cell: Any) -> bool:
    return isinstance(cell, str) and ROUNDED_ZERO.fullmatch(cell.strip()) is not None


def flatten(entry: Mapping[str, Any], start: str = "", depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """{"train": {"loss": 1}} -> train/loss. What has a mean of its own stands for it."""
    for key, value in entry.items():
        name = f"{start}{key}"
        if isinstance(value, Mapping) and depth:
            yield from flatten(value, f"{name}/", depth - 1)
        else:
            yield name, value
