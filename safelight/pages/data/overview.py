"""Everything about one run that is not a curve: state, verdict, settings, signals, findings, events, pictures."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safelight.config.resolve import flatten, resolve, to_dict
from safelight.diagnosis.convergence import progress
from safelight.errors import RecordError, SafelightError
from safelight.pages.data.cards import RuleFindings, acts, findings, run_rules, should_run_rules
from safelight.pages.data.checked import checked
from safelight.pages.data.gallery import pictures
from safelight.pages.data.headline import page_verdict
from safelight.pages.data.numbers import as_dict, as_float, as_int, as_list, as_str, trimmed
from safelight.pages.data.reproduce import reproduce
from safelight.pages.data.run_files import plain_file_inside, read_json
from safelight.pages.data.run_state import RunStatus, number_of_seconds, read_status
from safelight.pages.data.runs import FoundRun, describe
from safelight.pages.data.trend import best_step, distance_name, distance_of
from safelight.record.history import History, open_history
from safelight.run import RunFolder
from safelight.vocabulary import SPEED, TIME_LEFT, Signal, signal_of

SECONDS = 20.0  # after which a record that cannot be read is given up
MAX_SIGNALS, MAX_EVENTS, MAX_REJECTED = 4000, 1000, 500
LEVELS = "noise_levels"  # an event of watched loops, a fact of run.json of our own runs
QUIET_EVENTS = {"data", "parameters", "config", "log", LEVELS}  # events that are shown elsewhere, or long
MAX_SMALL_FACTS = 20  # facts of an event, and items of a list in them


def open_run_history(run: RunFolder, seconds: float = SECONDS) -> History:
    """Its record; one that lies outside the run folder is not opened."""
    if run.record.is_file() and plain_file_inside(run.path, run.record.name) is None:
        raise RecordError(f"The record {run.record} leads out of its run folder.")
    return open_history(run.record, seconds=seconds)


def overview(
    run: RunFolder, found: FoundRun | None = None, *, diagnose_again: bool = True, diagnosed: RuleFindings = None
) -> dict[str, Any]:
    """The whole page of a run but its curves; a run without a record has less of it. `diagnose_again`: run the rules,
    where the run ended; or `diagnosed`: what they found."""
    found = found or describe(run.path)
    run_status = read_status(run)
    if diagnose_again and diagnosed is None and should_run_rules(run_status):
        diagnosed = run_rules(run)
    config, size = read_settings(run)
    shown = summary(found, run_status) | {
        "kind": "watched" if run_status.facts.get("kind") == "watched" else "trained",
        "reproduce": reproduce(run, run_status.facts, config, _relative_path(run.path)),
        "levels": _levels(run_status.facts.get(LEVELS)),
        "data": _data(run),
        "config": config,
        "batch_size": size,
        "images_seen": None if run_status.step is None or size is None else run_status.step * size,
        "journal": acts(run_status),
        "evaluation": trimmed(run_status.facts.get("evaluation")),
    }
    shown |= {"signals": [], "findings": [], "events": [], "pictures": [], "cursor": -1, "best_step": None}
    shown |= {"progress": None, "checked": None}
    try:
        with open_run_history(run) as history:
            return shown | _recorded(run, found, run_status, history, diagnosed)
    except RecordError as error:
        words = str(error).replace(f"{run.path}/", "")  # without where the run lies on this machine
        problem = None if run_status.state == "empty" or not run.record.exists() else words
        return shown | status(run_status, None, []) | {"problem": problem, "version": version(run_status, None)}


def summary(found: FoundRun, run_status: RunStatus) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "created": run_status.created,
        "seconds": _seconds(found.path, run_status),
        "problem": None,
    }


def _recorded(
    run: RunFolder, found: FoundRun, run_status: RunStatus, history: History, diagnosed: RuleFindings
) -> dict[str, Any]:
    cards = findings(run, history, run_status, diagnosed=diagnosed, name=_relative_path(run.path))
    signals = describe_signals(history)
    levels = _levels(next((note.facts for note in history.events(LEVELS, most=1)), None))
    is_ill = any(each["over"] is None and each["severity"] != "info" for each in cards)
    return status(run_status, history, cards) | {
        "signals": signals,
        "findings": cards,
        "events": events(history),
        "pictures": pictures(history, run, found.id),
        "best_step": best_step(history, run_status.facts),
        "distance": distance_of(history, run_status.facts),
        "distance_name": distance_name(history, run_status.facts),
        "checked": checked(history, cards, watched=run_status.facts.get("kind") == "watched"),
        "progress": progress(history, advises=not is_ill).to_json(),
        "cursor": max((each["last"] for each in signals), default=-1),
        "version": version(run_status, history, diagnosed),
        **({"levels": levels} if levels else {}),
    }


def _levels(found: Any) -> dict[str, Any] | None:
    """Times and log-SNR of each noise level, as they were written down; None where they were not."""
    facts = as_dict(found)
    ends = {key: [[as_float(end) for end in as_list(each, 2)] for each in as_list(facts.get(key), 64)]
            for key in ("t", "log_snr")}  # fmt: skip
    return {"time": as_str(facts.get("time"), 8) or "t", **ends} if all(ends.values()) else None


def status(
    run_status: RunStatus, history: History | None, cards: list[dict[str, Any]], judged: dict[str, str] | None = None
) -> dict[str, Any]:
    """What changes all the time: small enough to be sent with every few new numbers. `judged`: a verdict that still
    holds."""
    live = run_status.state in ("live", "watched")
    left, speed = (history.last(name) if history is not None else None for name in (TIME_LEFT.name, SPEED.name))
    return {
        **{name: getattr(run_status, name) for name in ("status", "state", "step", "steps", "heartbeat", "age")},
        "left": as_float(left[1]) if left is not None and live else None,
        "speed": as_float(speed[1]) if speed is not None else None,
        "verdict": judged or page_verdict(run_status, history, cards),
    }


def read_settings(run: RunFolder) -> tuple[dict[str, Any] | None, int | None]:
    """(all settings by their dotted keys, batch size); a watched loop has none."""
    path = plain_file_inside(run.path, run.config.name)
    if path is None:
        return None, None
    try:
        config = resolve(file=path)
    except (SafelightError, OSError, ValueError, TypeError, RecursionError):
        return None, None
    return {key: trimmed(value) for key, value in flatten(to_dict(config)).items()}, config.train.batch_size


def describe_signals(history: History) -> list[dict[str, Any]]:
    found = []
    for name in history.signals()[:MAX_SIGNALS]:
        ends, signal = history.ends(name), signal_of(name) or Signal(name, "", "")
        if ends is not None:
            found.append(asdict(signal) | {"name": name[:200], "first": ends[0], "last": ends[1]})
    return found


def events(history: History) -> list[dict[str, Any]]:
    """The newest, with facts that are small."""
    return [
        {
            "step": as_int(note.step),
            "time": number_of_seconds(note.time),
            "kind": str(note.name)[:100],
            "facts": trimmed(as_dict(note.facts), depth=4, items=MAX_SMALL_FACTS),
        }
        for note in history.events(most=MAX_EVENTS)
        if note.name not in QUIET_EVENTS
    ]


def version(run_status: RunStatus, history: History | None, diagnosed: RuleFindings = None) -> str:
    """Changes when anything but readings changed. What stands before the point changes only where steps were cut."""
    facts = {key: run_status.facts.get(key) for key in ("status", "evaluation", "journal", "last_finding", "data")}
    notes = history.newest_notes() if history is not None else None
    content = json.dumps([facts, run_status.state, notes, diagnosed], sort_keys=True, default=str)
    return f"{run_status.attempt}.{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def _data(run: RunFolder) -> dict[str, Any] | None:
    facts = read_json(run.path, run.data.name)
    if not facts:
        return None
    rejected = facts.pop("rejected", None)
    rejected = rejected if isinstance(rejected, list) else []
    return trimmed(facts) | {"rejected": trimmed(rejected[:MAX_REJECTED]), "rejected_count": len(rejected)}


def _seconds(path: Path, run_status: RunStatus) -> float | None:
    """What the run has taken; of one of before that was written down as `comparison.elapsed_seconds` has it, reading
    nothing outside the folder."""
    if (taken := as_float(run_status.facts.get("seconds"))) is not None:
        return taken
    for folder in sorted(RunFolder(path).checkpoints.glob("step_*"), reverse=True)[:3]:
        found = as_float(read_json(path, folder.relative_to(path) / "state.json").get("seconds"))
        if found is not None:
            return found
    if run_status.created is None or run_status.heartbeat is None:
        return None
    return max(0.0, run_status.heartbeat - run_status.created)


def _relative_path(path: Path) -> str:
    """As a person would type it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)
