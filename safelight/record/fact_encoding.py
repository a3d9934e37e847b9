"""Facts of events and findings as JSON that any tool reads."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any


def encode(facts: Mapping[str, Any]) -> str:
    """Never raises: what JSON cannot express becomes text, and NaN becomes "NaN"."""
    try:
        return json.dumps(facts, default=str, allow_nan=False)
    except Exception:  # also what an object says of itself may fail
        try:
            return json.dumps(replace_nonfinite(facts, json.dumps), default=_in_words)
        except Exception:
            return json.dumps({"text": _in_words(facts)})


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Of what is read from records: a number that is not finite is null, which every reader of JSON takes."""
    separators = (",", ":") if indent is None else None
    try:
        return json.dumps(value, indent=indent, separators=separators, allow_nan=False)
    except ValueError:
        found = replace_nonfinite(value, lambda _: None)
        return json.dumps(found, indent=indent, separators=separators, allow_nan=False)


def _in_words(value: Any) -> str:
    for words in (str, repr):
        with suppress(Exception):
            return words(value)
    return f"a {type(value).__name__} without words"


def is_storable(value: Any) -> bool:
    """Whether SQLite takes it: whole numbers of 64 bits, and text without lone surrogates."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    try:
        return value is None or isinstance(value, float | bytes) or bool(str.encode(value) or True)
    except (TypeError, UnicodeEncodeError):
        return False


def replace_nonfinite(value: Any, replace: Callable[[float], Any]) -> Any:
    """The same plain data, with something else for every number that is not finite."""
    if isinstance(value, Mapping):
        return {str(key): replace_nonfinite(each, replace) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(each, replace) for each in value]
    return replace(value) if isinstance(value, float) and not math.isfinite(value) else value
