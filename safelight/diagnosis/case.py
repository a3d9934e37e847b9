"""What a rule is given: the history of a run, asked in the words that rules use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from safelight.config import Config
from safelight.record.notes import Note


class Readings(Protocol):
    """A record, or in tests a few lists."""

    def signals(self) -> list[str]: ...

    def raw(self, signal: str, first: int | None = None, last: int | None = None) -> tuple[np.ndarray, np.ndarray]: ...

    def events(self, kind: str | None = None) -> list[Note]: ...


@dataclass(frozen=True)
class Case:
    """A run as far as it is known; a loop that is not ours has no config."""

    readings: Readings
    config: Config | None = None
    status: Mapping[str, Any] = field(default_factory=dict)

    def series(self, signal: str) -> tuple[np.ndarray, np.ndarray]:
        """(steps, numbers), whole; empty where it was not recorded."""
        return self.readings.raw(signal)

    def parts(self, family: str) -> list[str]:
        """The parts of a network that a family of signals tells of."""
        start = f"{family}/"
        return [name.removeprefix(start) for name in self.readings.signals() if name.startswith(start)]

    def events(self, kind: str) -> Sequence[Note]:
        return self.readings.events(kind)
