"""Runs side by side: which settings differ, how far each came, where its signals stand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safelight.config.resolve import flatten, resolve, to_dict
from safelight.record.dump import choose_signals, describe
from safelight.record.history import open_history
from safelight.run import open_recorded

LOWER, HIGHER = "low", "high"
BEST = {  # what counts as better; a loss by itself mostly says which timesteps were drawn
    "probe/ema": LOWER,
    "probe/raw": LOWER,
    "probe/held_ema": LOWER,
    "probe/held_raw": LOWER,
    "loss/mean": None,
    "gradient/norm": None,
    "quality/distance": LOWER,
    "quality/kernel": LOWER,
    "diversity/variance": None,
    "copies/share": None,
    "speed/images": HIGHER,
}


def compare(paths: tuple[Path, ...], signals: tuple[str, ...]) -> dict[str, Any]:
    """{"settings": {key: [values]}, "runs": [{"run", "status", "step", "steps", "seconds", "signals"}]}."""
    folders = [open_recorded(path) for path in paths]
    configs = [resolve(file=folder.config) if folder.config.is_file() else None for folder in folders]  # watched: none
    settings = [None if config is None else flatten(to_dict(config)) for config in configs]
    return {
        "settings": differing_settings(settings),
        "runs": [
            {
                "run": str(folder.path),
                "status": folder.status().get("status"),
                "step": folder.status().get("step"),
                "steps": None if config is None else config.train.steps,
                "seconds": seconds_trained(folder.checkpoints),
                "signals": standing(folder.record, signals),
            }
            for folder, config in zip(folders, configs, strict=True)
        ],
    }


def differing_settings(configs: Sequence[Mapping[str, Any] | None]) -> dict[str, list[Any]]:
    """The settings in which runs differ, with the value of each run; None for a run without settings."""
    known = [config for config in configs if config is not None]
    keys = dict.fromkeys(key for config in known for key in config)
    return {
        key: [None if config is None else config.get(key) for config in configs]
        for key in keys
        if any(config.get(key) != known[0].get(key) for config in known)
    }


def seconds_trained(checkpoints: Path) -> float | None:
    """As the newest checkpoint has it."""
    for folder in sorted(checkpoints.glob("step_*"), reverse=True):
        try:
            return float(json.loads((folder / "state.json").read_bytes())["seconds"])
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return None


def standing(record: Path, signals: tuple[str, ...]) -> dict[str, Any]:
    """Last, recent and best of each signal that the run has."""
    with open_history(record) as history:
        known = history.signals()
        names = choose_signals(known, signals) if signals else [name for name in BEST if name in known]
        found = {name: describe(history, name) for name in names}
        for name, facts in found.items():
            facts["best"] = None if BEST.get(name) is None else facts.get(str(BEST[name]))
            facts["best_step"] = None if facts["best"] is None else history.find(name, facts["best"])
    return found
