"""Facts of events and findings as JSON that any tool reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def encode(facts: Mapping[str, Any]) -> str:
    """Never raises: what JSON has no word for becomes text, and NaN becomes "NaN"."""
    try:
        return json.dumps(facts, default=str, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        try:
            return json.dumps(spelled(facts), default=str)
        except (TypeError, ValueError, RecursionError):
            return json.dumps({"text": repr(facts)})


def spelled(value: Any) -> Any:
    """The same, with words for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): spelled(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [spelled(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
