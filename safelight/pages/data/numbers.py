"""Numbers as JSON takes them: what is not finite becomes None, and no more digits than a screen can show."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

DIGITS = 6
FEW_NUMBERS = 8  # numbers that are sooner rounded one by one
MAX_DEPTH, MAX_TEXT_LENGTH, MAX_ITEMS = 8, 4000, 1000  # of facts from an untrusted record


def plain(numbers: np.ndarray) -> list[float | None]:
    """Six significant digits; None if there is no finite number."""
    wide = np.asarray(numbers, np.float64)
    if len(wide) <= FEW_NUMBERS:
        return [as_float(each) for each in wide.tolist()]
    finite = np.isfinite(wide)
    filled = np.where(finite, wide, 0.0)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        size = np.floor(np.log10(np.abs(filled), where=filled != 0, out=np.zeros_like(filled)))
        places = np.clip(DIGITS - 1 - size, -300, 300)
        # A power of ten below one is not exact: large numbers are divided instead, so that no stray digits are left.
        up, down = 10.0 ** np.maximum(places, 0), 10.0 ** np.maximum(-places, 0)
        rounded = np.round(filled * up / down) * down / up
    kept = np.where(np.isfinite(rounded), rounded, filled)
    return [number if good else None for number, good in zip(kept.tolist(), finite.tolist(), strict=True)]


def whole(numbers: np.ndarray) -> list[int]:
    return np.asarray(numbers, np.int64).tolist()


def as_float(value: Any) -> float | None:
    """A finite number, or None: for facts that may hold anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return float(f"{found:.{DIGITS}g}") if math.isfinite(found) else None


def as_int(value: Any) -> int | None:
    """A whole number of a size that browsers keep, or None."""
    found = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53
    return value if found else None


def as_str(value: Any, most: int = MAX_TEXT_LENGTH) -> str | None:
    return value[:most] if isinstance(value, str) else None


def as_dict(value: Any) -> dict[str, Any]:
    """A JSON object; an empty one where it is anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any, most: int = MAX_ITEMS) -> list[Any]:
    """The first of a JSON array; none if it is anything else."""
    return list(value[:most]) if isinstance(value, list | tuple) else []


def trimmed(value: Any, depth: int = MAX_DEPTH, items: int = MAX_ITEMS) -> Any:
    """Facts of any kind as JSON, cut where they are deeper or longer than anything we write."""
    if isinstance(value, dict):
        if not depth:
            return None
        return {str(key)[:200]: trimmed(each, depth - 1, items) for key, each in list(value.items())[:items]}
    if isinstance(value, list | tuple):
        return None if not depth else [trimmed(each, depth - 1, items) for each in value[:items]]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < 1 << 53 else as_float(value)
    return value[:MAX_TEXT_LENGTH] if isinstance(value, str) else value if value is None else bool(value)
