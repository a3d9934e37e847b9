"""What is worth a message: what changed in a run since it was last looked at."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from safelight.errors import RecordError
from safelight.pages.data.cards import findings
from safelight.pages.data.overview import open_run_history, status
from safelight.pages.data.run_state import RunStatus, read_status
from safelight.run import RunFolder

Message = dict[str, Any]
MAX_FINDINGS = 20  # messages about findings: a run that is sick in many ways is known to be


@dataclass(slots=True)
class RunMessages:
    """Of one run. `is_alive`: whether the process that trains it is still there."""

    folder: RunFolder
    is_alive: Callable[[], bool]
    begun: float = field(default_factory=time.time)
    """What run.json says from before is about an earlier attempt."""
    _seen: set[str] = field(default_factory=set)
    is_over: bool = False
    """The last message was the last one."""

    def started(self) -> Message:
        found = read_status(self.folder)
        return self._message("started", found, f"Continued from step {found.step:,}." if found.step else "Started.")

    def new(self) -> Iterator[Message]:
        """The order is that of what happened: findings first, then the end."""
        alive, found = self.is_alive(), read_status(self.folder)  # in this order: a run that ends says so, then goes
        cards, verdict = self._recorded(found)
        for card in cards:
            if card["over"] is None and card["severity"] != "info" and card["code"] not in self._seen:
                self._seen.add(card["code"])
                if len(self._seen) <= MAX_FINDINGS:
                    yield self._finding(found, card)
        if found.is_over and (found.heartbeat or 0.0) >= self.begun:
            self.is_over = True
            yield self._message("ended", found, _ended(found, verdict or ""), verdict=verdict)
        elif not alive:
            self.is_over = True
            text = f"Died at step {found.step or 0:,} without a word. `safelight resume` continues it."
            yield self._message("died", found, text, verdict=verdict)

    def _recorded(self, found: RunStatus) -> tuple[list[dict[str, Any]], str | None]:
        with contextlib.suppress(RecordError), open_run_history(self.folder) as history:
            cards = findings(self.folder, history, found, name=self.folder.path.name)
            return cards, status(found, history, cards)["verdict"]["sentence"]
        return [], None

    def _finding(self, found: RunStatus, card: dict[str, Any]) -> Message:
        names = ("code", "cause", "severity", "step", "summary")
        finding = {name: card[name] for name in names} | {"fix": (card.get("fix") or {}).get("text")}
        text = f"{card['severity'].capitalize()} {card['code']} {card['cause']}: {card['summary']}"
        return self._message("finding", found, text, finding=finding)

    def _message(self, event: str, found: RunStatus, text: str, **more: Any) -> Message:
        return {
            "tool": "safelight", "event": event, "run": self.folder.path.name, "status": found.status,
            "step": found.step, "steps": found.steps, "text": text, **more,
        }  # fmt: skip


def _ended(found: RunStatus, verdict: str) -> str:
    how = f"{(found.status or 'ended').capitalize()} at step {found.step or 0:,}"
    return verdict if verdict.startswith(how) else f"{how}. {verdict}".strip()
