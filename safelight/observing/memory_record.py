"""A record in memory, for a few trial steps."""

from __future__ import annotations

from collections.abc import Mapping


class MemoryRecord:
    """Readings by step and name."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[str, float]] = {}

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        self.steps.setdefault(step, {}).update(numbers)

    def series(self) -> dict[str, tuple[list[int], list[float]]]:
        rows = sorted(self.steps.items())
        return {
            name: ([step for step, row in rows if name in row], [row[name] for _, row in rows if name in row])
            for name in dict.fromkeys(name for _, row in rows for name in row)
        }
