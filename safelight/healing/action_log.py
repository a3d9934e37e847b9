"""Where the acts on a run are told: the record, the screen and run.json. The journal itself is in the checkpoints."""

from __future__ import annotations

from collections.abc import Callable

from safelight.healing.journal import Act
from safelight.observing.recorder import Recorder
from safelight.run import RunFolder
from safelight.training.state import State


class ActionLog:
    """Says what was done, once and where it was needed."""

    def __init__(self, state: State, record: Recorder, folder: RunFolder, say: Callable[[str], None]) -> None:
        self._state, self._record, self._folder, self._say = state, record, folder, say

    def tell(self, act: Act) -> None:
        self._note(act)
        self._say(act.told())
        self._folder.report(journal=self._state.journal.to_json())

    def retell(self, step: int) -> None:
        """The record was cut at a step that is trained again; what was done stays done."""
        for act in self._state.journal.acts:
            if act.step >= step:
                self._note(act)
        if self._state.journal.acts or "journal" in self._folder.status():
            self._folder.report(journal=self._state.journal.to_json())

    def _note(self, act: Act) -> None:
        facts = {"number": act.number, "act": act.kind, "since": act.since, "undone": act.undone}
        self._record.event(act.step, "healed", **facts, reason=act.reason, **act.facts)
