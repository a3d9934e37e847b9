"""The watch of a process that is not the first: the same calls, and nothing happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from safelight.diagnosis import Diagnosis, Finding, Progress
from safelight.diagnosis.coverage import Coverage


class NullWatch:
    """As `Watch`."""

    updates: int = 0
    findings: Sequence[Finding] = ()
    verdict = "This process is not watched: the first one is."
    progress = Progress()
    best_step: int | None = None
    stats: Mapping[str, Any] = MappingProxyType({"findings": ()})

    @property
    def diagnosis(self) -> Diagnosis:
        return Diagnosis([], Coverage(0, 0, {}, {}), watched=True)

    def step(self, loss: Tensor | float | None = None, **_: Tensor | None) -> Mapping[str, Any]:
        return self.stats

    def image(self, name: str, images: Any, step: int | None = None) -> None: ...

    def report(self, out: str | Path | None = None) -> None: ...

    def log(self, values: Mapping[str, float], step: int | None = None) -> None: ...

    def close(self, **_: Any) -> None: ...

    def __enter__(self) -> NullWatch:
        return self

    def __exit__(self, *_: object) -> None: ...
