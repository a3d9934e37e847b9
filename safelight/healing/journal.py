"""The journal of a run: every act with its reason, in order. Kept in checkpoints and recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from safelight.errors import CheckpointError, UsageError

Kind = Literal["redo", "quarantine", "lower-rate", "change-precision", "halve-batch", "restore-mode"]


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that was done to the run."""

    number: int  # from 1
    kind: Kind
    step: int
    """The update, from 0, at which it was found to be needed."""
    since: int
    """The first update that is made under it; earlier than `step` where the run went back."""
    reason: str
    facts: dict[str, Any] = field(default_factory=dict)
    """Numbers that prove it, and what it changes. Plain data."""
    undone: int | None = None
    """The first update that is made without it."""

    def is_active(self, step: int) -> bool:
        return self.since <= step and (self.undone is None or step < self.undone)

    def describe(self) -> str:
        """One line for the screen."""
        undone = f" Undone from step {self.undone:,} on." if self.undone is not None else ""
        return f"Step {self.step:,}: {self.reason} (act {self.number}, {self.kind}).{undone}"


class Journal:
    """The acts of one run. It only grows: an act that is undone stays, and says so."""

    def __init__(self, acts: Iterable[Act] = ()) -> None:
        self.acts: tuple[Act, ...] = tuple(acts)

    def write(self, kind: Kind, *, step: int, since: int, reason: str, facts: Mapping[str, Any]) -> Act:
        act = Act(len(self.acts) + 1, kind, step, since, reason, dict(facts))
        self.acts = (*self.acts, act)
        return act

    def undo(self, number: int, step: int) -> Act:
        """Drops the effect of an act from this step on."""
        if not 1 <= number <= len(self.acts):
            acts = f"It has acts 1 to {len(self.acts)}." if self.acts else "Nothing was done to this run."
            raise UsageError(f"There is no act {number} in the journal of this run. {acts}")
        act = self.acts[number - 1]
        if act.undone is not None:
            raise UsageError(f"Act {number} ({act.kind}) is undone already, from step {act.undone:,} on.")
        undone = replace(act, undone=max(step, act.since))
        self.acts = (*self.acts[: number - 1], undone, *self.acts[number:])
        return undone

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(act) for act in self.acts]


def _is_plain(act: Act) -> bool:
    steps = [act.number, act.step, act.since, 0 if act.undone is None else act.undone]
    return all(type(step) is int for step in steps) and isinstance(act.reason, str) and isinstance(act.facts, dict)


def read_journal(found: object) -> Journal:
    """The journal of a checkpoint; empty if the checkpoint is older than journals."""
    if not isinstance(found, list | None):
        raise CheckpointError(f"The journal of the checkpoint should be a list, and is a {type(found).__name__}.")
    try:
        acts = [Act(**each) for each in found or ()]
        if not all(_is_plain(act) for act in acts):
            raise TypeError("a step is not a number, a reason not a text, or facts not an object")
    except TypeError as error:
        raise CheckpointError(f"The journal of the checkpoint cannot be read: {error}.") from error
    for place, act in enumerate(acts, 1):
        if act.number != place or act.kind not in get_args(Kind):
            raise CheckpointError(f"The journal of the checkpoint has no act {place} that can be read: {act}.")
    return Journal(acts)
