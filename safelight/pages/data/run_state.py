"""How a run is, from its status file: training, silent, ended, and since when; and its settings."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.diagnosis.run_history import RunHistory
from safelight.errors import SafelightError
from safelight.pages.data.numbers import as_float, as_int, as_str
from safelight.pages.data.run_files import plain_file_inside, read_json
from safelight.record.history import History
from safelight.run import RunFolder

State = Literal["live", "stale", "crashed", "finished", "interrupted", "refused", "stopped", "watched", "empty"]
STALE_SECONDS = 20.0  # a heartbeat comes every two; a picture or an evaluation may hold it up a while
STATES: dict[str, State] = {  # of the other statuses; one that is not known counts as stopped
    "finished": "finished",
    "ended": "finished",
    "interrupted": "interrupted",
    "refused": "refused",
    "crashed": "crashed",
    "out of memory": "crashed",
    "unsaved": "crashed",
}


@dataclass(frozen=True, slots=True)
class RunStatus:
    """What run.json says, with everything checked: it may be untrusted."""

    state: State
    status: str | None
    step: int | None
    steps: int | None
    created: float | None
    heartbeat: float | None
    age: float | None
    """Seconds since the heartbeat."""
    attempt: str
    """Changes with every resume, and with every return to an earlier checkpoint."""
    facts: Mapping[str, Any]
    folder: RunFolder

    @property
    def accepts_more_inputs(self) -> bool:
        """Whether it is a loop that could pass more to its watch."""
        return self.facts.get("kind") == "watched" and not self.facts.get("captured")

    @property
    def is_over(self) -> bool:
        return self.state not in ("live", "stale", "watched", "empty")


def read_status(run: RunFolder) -> RunStatus:
    facts = read_json(run.path, run.status_file.name)
    heartbeat, status = number_of_seconds(facts.get("heartbeat")), as_str(facts.get("status"), 40)
    journal = facts.get("journal")
    age = None if heartbeat is None else max(0.0, time.time() - heartbeat)
    return RunStatus(
        state=_state(status, age, facts.get("kind") == "watched"),
        status=status,
        step=as_int(facts.get("step")),
        steps=as_int(facts.get("steps")),
        created=number_of_seconds(facts.get("created")),
        heartbeat=heartbeat,
        age=None if age is None else round(age, 1),
        attempt=f"{as_int(facts.get('pid'))}-{len(journal) if isinstance(journal, list) else 0}",
        facts=facts,
        folder=run,
    )


def read_config(run: RunFolder) -> Config | None:
    """All settings; a watched loop has none."""
    path = plain_file_inside(run.path, run.config.name)
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if path is None or found is None else _resolved(path, found.st_mtime_ns, found.st_size)


def run_history(run_status: RunStatus, history: History) -> RunHistory:
    """As `safelight doctor` reads it."""
    return RunHistory(history, read_config(run_status.folder), run_status.facts)


@functools.lru_cache(maxsize=256)
def _resolved(path: Path, _changed: int, _size: int) -> Config | None:
    """Read once, as a page asks again and again."""
    try:
        return resolve(file=path)
    except (SafelightError, OSError, ValueError, TypeError, RecursionError):
        return None


def number_of_seconds(value: Any) -> float | None:
    """Seconds since 1970, or None if they are not plausible."""
    is_plausible = as_float(value) is not None and abs(value) < 1e11
    return round(float(value), 3) if is_plausible else None


def _state(status: str | None, age: float | None, watched: bool) -> State:
    if status is None:
        return "empty"
    if status != "training":
        return STATES.get(status, "stopped")
    if age is None or age > STALE_SECONDS:
        return "stale"
    return "watched" if watched else "live"
