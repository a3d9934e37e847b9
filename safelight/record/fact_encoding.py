"""Facts of events and findings as JSON that any tool reads."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any


def encode(facts: Mapping[str, Any]) -> str:
    """Never raises: what JSON cannot express becomes text, and NaN becomes "NaN"."""
    try:
        return json.dumps(facts, default=str, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        try:
            return json.dumps(replace_nonfinite(facts, json.dumps), default=str)
        except (TypeError, ValueError, RecursionError):
            return json.dumps({"text": repr(facts)})


def replace_nonfinite(value: Any, replace: Callable[[float], Any]) -> Any:
    """The same plain data, with something else for every number that is not finite."""
    if isinstance(value, Mapping):
        return {str(key): replace_nonfinite(each, replace) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(each, replace) for each in value]
    return replace(value) if isinstance(value, float) and not math.isfinite(value) else value
