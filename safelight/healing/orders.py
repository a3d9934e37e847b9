"""What healing asks of the loop: to go back to a good checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from safelight.errors import Stopped
from safelight.healing.journal import Kind


@dataclass(eq=False)
class Rollback(Exception):
    """What came after the last good checkpoint is given up."""

    kind: Kind
    step: int
    reason: str
    facts: dict[str, Any] = field(default_factory=dict)

    def without_checkpoint(self, lr: float) -> Stopped:
        return Stopped(
            f"Stopped at step {self.step}: {self.reason}, and there is no good checkpoint to go back to. The usual "
            f"fixes: a lower --lr (now {lr:g}), a longer optimizer.warmup.",
            finding=self.reason,
        )
