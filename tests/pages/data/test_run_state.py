"""How a run is, from a status file that may hold anything."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from safelight.pages.data.run_state import STALE_SECONDS, read_status
from safelight.run import RunFolder


@pytest.mark.parametrize(
    ("facts", "state", "over"),
    [
        ({}, "empty", False),
        ({"status": "training", "age": 0}, "live", False),
        ({"status": "training", "age": STALE_SECONDS - 5}, "live", False),
        ({"status": "training", "age": STALE_SECONDS + 5}, "stale", False),
        ({"status": "training"}, "stale", False),
        ({"status": "training", "age": 0, "kind": "watched"}, "watched", False),
        ({"status": "training", "age": 0, "kind": ["watched"]}, "live", False),
        ({"status": "finished", "age": 9999}, "finished", True),
        ({"status": "out of memory"}, "crashed", True),
        ({"status": "refused"}, "refused", True),
        ({"status": "live"}, "stopped", True),
    ],
)
def test_the_state(tmp_path: Path, facts: dict, state: str, over: bool) -> None:
    known = facts | {"heartbeat": time.time() - facts["age"]} if "age" in facts else facts
    (tmp_path / "run.json").write_text(json.dumps(known))
    found = read_status(RunFolder(tmp_path))
    assert (found.state, found.is_over) == (state, over)


def test_an_attempt_changes_with_the_process_and_with_the_journal(tmp_path: Path) -> None:
    attempts = set()
    for facts in ({"pid": 1}, {"pid": 2}, {"pid": 2, "journal": [{}]}, {"pid": 2, "journal": "x", "step": 7}):
        (tmp_path / "run.json").write_text(json.dumps(facts))
        attempts.add(read_status(RunFolder(tmp_path)).attempt)
    assert attempts == {"1-0", "2-0", "2-1"}
