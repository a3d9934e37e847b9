"""Runs side by side: which settings differ, and how far each came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safelight.comparison import standing
from safelight.errors import RecordError, SafelightError
from safelight.pages.data.gallery import pictures
from safelight.pages.data.numbers import trimmed
from safelight.pages.data.overview import open_run_history, read_settings
from safelight.pages.data.run_list import entry
from safelight.pages.data.runs import FoundRun

QUIET = ("data.cache", "data.workers", "data.scan_workers")  # where and how fast, not what


def compare_runs(runs: Sequence[FoundRun]) -> dict[str, Any]:
    """{"settings": {key: [values]} where they differ, "runs": [a line of the list with signals and pictures each]}."""
    configs = [read_settings(run.folder)[0] for run in runs]
    keys = dict.fromkeys(key for config in configs if config is not None for key in config)
    settings = {key: [None if config is None else config.get(key) for config in configs] for key in keys}
    known = [place for place, config in enumerate(configs) if config is not None]
    differing = {
        key: values
        for key, values in settings.items()
        if key not in QUIET and any(values[place] != values[known[0]] for place in known)
    }
    return {"settings": differing, "runs": [entry(run) | _standing(run) for run in runs]}


def _standing(run: FoundRun) -> dict[str, Any]:
    try:
        with open_run_history(run.folder) as history:
            return {
                "signals": trimmed(standing(run.folder.record, ())),
                "pictures": pictures(history, run.folder, run.id),
            }
    except (RecordError, SafelightError):
        return {"signals": {}, "pictures": []}
