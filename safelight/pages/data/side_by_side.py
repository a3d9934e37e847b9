"""Runs side by side: which settings differ, and how far each came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safelight.comparison import differing_settings, standing
from safelight.errors import SafelightError
from safelight.pages.data.gallery import pictures
from safelight.pages.data.numbers import trimmed
from safelight.pages.data.overview import open_run_history, read_settings
from safelight.pages.data.run_list import entry
from safelight.pages.data.runs import FoundRun

QUIET = ("data.cache", "data.workers", "data.scan_workers")  # where and how fast, not what


def compare_runs(runs: Sequence[FoundRun]) -> dict[str, Any]:
    """{"settings": {key: [values]} where they differ, "runs": [a line of the list with signals and pictures each]}."""
    differing = differing_settings([read_settings(run.folder)[0] for run in runs])
    settings = {key: values for key, values in differing.items() if key not in QUIET}
    return {"settings": settings, "runs": [entry(run) | _standing(run) for run in runs]}


def _standing(run: FoundRun) -> dict[str, Any]:
    try:
        with open_run_history(run.folder) as history:
            return {
                "signals": trimmed(standing(run.folder.record, ())),
                "pictures": pictures(history, run.folder, run.id),
            }
    except SafelightError:
        return {"signals": {}, "pictures": []}
