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
            return json.dumps(_spell(facts), default=str)
        except (TypeError, ValueError, RecursionError):
            return json.dumps({"text": repr(facts)})


def _spell(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _spell(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_spell(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
