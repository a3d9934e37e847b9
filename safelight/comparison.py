"""Runs side by side: which settings differ, how far each came, where its signals stand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from safelight.config import Config
from safelight.config.resolve import flatten, resolve, to_dict
from safelight.files import read_json
from safelight.ranking import Result, rank
from safelight.record.dump import choose_signals, describe
from safelight.record.history import History, open_history
from safelight.run import RunFolder, open_recorded
from safelight.vocabulary import DISTANCE, DISTANCE_ERROR, LOSS_AT_LEVEL, SKILL_AT_LEVEL, SKILL_EMA, SKILL_HELD_OUT

LEVELS = 16  # of noise
Number = TypeVar("Number", int, float)
BEST_OF_SIGNAL = {  # what counts as better; a loss by itself mostly says which timesteps were drawn
    **dict.fromkeys(("probe/ema", "probe/raw", "probe/held_ema", "probe/held_raw"), "low"),
    **dict.fromkeys(("loss/mean", "gradient/norm"), None),
    **dict.fromkeys(("quality/distance", "quality/kernel"), "low"),
    **dict.fromkeys(("diversity/variance", "copies/share"), None),
    "speed/images": "high",
}


def compare(paths: tuple[Path, ...], signals: tuple[str, ...]) -> dict[str, Any]:
    """{"verdict": see `rank`, "settings": {key: [values]}, "levels": see `levels_of`, "runs": [{"run", "status",
    "step", "steps", "seconds", "best_step", "evaluation", "signals"}]}."""
    folders = [open_recorded(path) for path in paths]
    configs = [resolve(file=folder.config) if folder.config.is_file() else None for folder in folders]  # watched: none
    settings = [None if config is None else flatten(to_dict(config)) for config in configs]
    runs = [_describe_run(folder, config, signals) for folder, config in zip(folders, configs, strict=True)]
    with ExitStack() as stack:
        histories = [stack.enter_context(open_history(folder.record)) for folder in folders]
        each = zip(folders, histories, paths, strict=True)
        verdict = rank([result_of(folder.status(), history, str(path)) for folder, history, path in each])
        levels = levels_of(histories)
    return {"verdict": verdict, "settings": differing_settings(settings), "levels": levels, "runs": runs}


def result_of(status: Mapping[str, Any], history: History | None, name: str) -> Result:
    """What a run has come to, as far as it was measured: the best checkpoint on fresh noise, else the newest samples.
    `status`: its run.json."""
    data, scored, step = _facts(status.get("data")), _facts(status.get("evaluation")), status.get("step")
    label, distance, error = scored.get("label"), scored.get("distance"), scored.get("error")
    skill = None
    if history is not None:
        if not isinstance(distance, float):
            distance, error = (_last(history, signal) for signal in (DISTANCE.name, DISTANCE_ERROR.name))
            label = _facts(next((note.facts for note in history.events("evaluated", most=1)), None)).get("label")
        skill = _last(history, SKILL_HELD_OUT.name)
        skill = _last(history, SKILL_EMA.name) if skill is None else skill
    label = label if isinstance(label, str) else None
    return Result(name, step, data.get("fingerprint"), label, distance, error, skill)


def levels_of(histories: Sequence[History | None]) -> list[dict[str, Any]]:
    """The newest loss and skill of each noise level, of each run; None where it was not measured."""
    return [
        {
            "level": level,
            "losses": [_last(history, f"{LOSS_AT_LEVEL.name}/{level:02d}") for history in histories],
            "skills": [_last(history, f"{SKILL_AT_LEVEL.name}/{level:02d}") for history in histories],
        }
        for level in range(LEVELS)
    ]


def _facts(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _last(history: History | None, name: str) -> float | None:
    last = None if history is None else history.last(name)
    return None if last is None or not math.isfinite(last[1]) else float(last[1])


def _describe_run(folder: RunFolder, config: Config | None, signals: tuple[str, ...]) -> dict[str, Any]:
    status = folder.status()
    planned = status.get("steps") if config is None else config.train.steps
    with open_history(folder.record) as history:
        return {
            "run": str(folder.path),
            "status": status.get("status"),
            "step": status.get("step"),
            "steps": planned if isinstance(planned, int) else None,
            "seconds": elapsed_seconds(folder),
            "best_step": status.get("best_step"),
            "evaluation": status.get("evaluation"),
            "signals": describe_signals(history, signals),
        }


def differing_settings(configs: Sequence[Mapping[str, Any] | None]) -> dict[str, list[Any]]:
    """The settings in which runs differ, with the value of each run; None for a run without settings."""
    present = [config for config in configs if config is not None]
    keys = dict.fromkeys(key for config in present for key in config)
    return {
        key: [None if config is None else config.get(key) for config in configs]
        for key in keys
        if any(config.get(key) != present[0].get(key) for config in present)
    }


def elapsed_seconds(folder: RunFolder) -> float | None:
    """What a run has taken, from its first step on, with pictures, evaluations and checkpoints, over all its resumes.
    Runs of before it was written down: seconds of training alone, or since it was created."""
    status = folder.status()
    if isinstance(found := status.get("seconds"), float):
        return found
    if (trained := newest_state(folder.checkpoints, "seconds", float)) is not None:
        return trained
    created, heartbeat = status.get("created"), status.get("heartbeat")
    return max(0.0, heartbeat - created) if isinstance(created, float) and isinstance(heartbeat, float) else None


def newest_state(checkpoints: Path, name: str, kind: type[Number]) -> Number | None:
    """A number as the newest checkpoint has it whose state.json can be read and has one."""
    for folder in sorted(checkpoints.glob("step_*"), reverse=True):
        with suppress(TypeError, KeyError):
            found = read_json(folder / "state.json")[name]
            if isinstance(found, kind):
                return found
    return None


def describe_signals(history: History, signals: tuple[str, ...] = ()) -> dict[str, Any]:
    """Last, recent and best of each of these signals; without any, of the usual ones that the run has."""
    available = history.signals()
    names = choose_signals(available, signals) if signals else [name for name in BEST_OF_SIGNAL if name in available]
    found = {name: describe(history, name) for name in names}
    for name, facts in found.items():
        facts["best"] = None if BEST_OF_SIGNAL.get(name) is None else facts.get(str(BEST_OF_SIGNAL[name]))
        # A reading has the number of its update, from 0; people, pictures and checkpoints count steps that are done.
        found_at = None if facts["best"] is None else history.find(name, facts["best"])
        facts["best_step"] = None if found_at is None else found_at + 1
    return found
