"""What healing tells the loop: to go back, or to stop because nothing more may be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from safelight.errors import Stopped
from safelight.healing.journal import Act, Kind


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
            f"cures: a lower --lr (now {lr:g}), a longer optimizer.warmup."
        )


@dataclass(eq=False)
class BudgetSpent(Exception):
    """Something should be done, and the budget is used up."""

    step: int
    reason: str

    def stopped(self, budget: int, acts: Sequence[Act]) -> Stopped:
        done = "; ".join(f"{act.number}: {act.kind} at step {act.step:,}" for act in acts)
        return Stopped(
            f"Stopped at step {self.step}: {self.reason}. That would be act {len(acts) + 1}, and heal.budget is "
            f"{budget} ({done}). The weights are saved. Look for the cause with `safelight doctor`, or allow more: "
            f"--set heal.budget={2 * budget}"
        )
