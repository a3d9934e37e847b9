"""One run of the gauntlet before it is made, and what came of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from gauntlet.options import Base, Options, Shown, defaults

Kind = Literal["faulty", "healthy", "twin"]
Detection = dict[str, Any]  # cause, severity, step, confidence


@dataclass(frozen=True)
class Scenario:
    id: str
    kind: Kind
    base: Base
    seed: int
    faults: tuple[tuple[str, Any], ...] = ()
    """(fault, dose) of each deed."""
    causes: tuple[tuple[str, ...], ...] = ()
    """Accepted causes of each deed, the exact one first."""
    begin: float | None = None
    """Share of the run after which it begins."""
    once: bool = False
    shown: Shown = "all"
    recipe: str | None = None
    changes: tuple[tuple[str, Any], ...] = ()
    """Options that differ from those of the base."""

    @property
    def options(self) -> Options:
        return defaults(self.base).changed(**dict(self.changes))

    @property
    def twin(self) -> Scenario:
        """The same run without the deed."""
        told = ",".join(f"{name}={value}" for name, value in self.changes)
        return Scenario(
            f"twin({told}; {self.shown})", "twin", self.base, self.seed, shown=self.shown, changes=self.changes
        )


@dataclass
class Verdict:
    """What the watch said, when, and what the run was like."""

    id: str
    kind: Kind
    base: Base
    seed: int
    causes: tuple[tuple[str, ...], ...] = ()
    twin: str | None = None
    begin: int = 0
    """Step at which the fault began."""
    once: bool = False
    shown: Shown = "all"
    findings: list[Detection] = field(default_factory=list)
    looks: dict[str, int] = field(default_factory=dict)
    """Steps that were done at the look that first showed a cause."""
    preflight: bool = False
    """Whether the run was refused before its first update."""
    error: str | None = None
    """What the loop itself died of."""
    metrics: dict[str, float] = field(default_factory=dict)
    baselines: list[str] = field(default_factory=list)
    loss: tuple[float, float] | None = None
    """Mean of the first and of the last tenth."""
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str, int]:
        return self.id, self.base, self.seed

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(found: dict[str, Any]) -> Verdict:
        kept = dict(found)
        kept["causes"] = tuple(tuple(each) for each in kept.get("causes", ()))
        kept["loss"] = None if kept.get("loss") is None else tuple(kept["loss"])
        return Verdict(**kept)
