"""Calls probes, so that a fault of one costs its own readings and nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from safelight.monitors.reading_buffer import PendingReading

ALL_PROBES = "probes"


class ProbeGuard:
    """What failed is not called again; `broken` says what did, and why."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.broken: dict[str, str] = {}

    @property
    def is_off(self) -> bool:
        return ALL_PROBES in self.broken

    def run(self, act: Callable[..., list[PendingReading] | None], *given: Any) -> list[PendingReading]:
        """An error of what calls the probes switches them off, and nothing else."""
        if not self.is_off:
            try:
                return act(*given) or []
            except Exception as error:
                self.broken[ALL_PROBES] = f"{type(error).__name__}: {error}"
                self.say(f"Safelight's probes stopped ({self.broken[ALL_PROBES]}); everything else continues.")
        return []

    def measure(self, name: str, probe: Callable[..., Mapping[str, float]], *given: Any) -> dict[str, float]:
        """A probe that fails is recorded once and not run again; the others continue."""
        if name in self.broken:
            return {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return dict(probe(*given))
        except Exception as error:
            self.broken[name] = f"{type(error).__name__}: {error}"
            return {}
