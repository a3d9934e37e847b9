"""Several runs at once: a line for each with its state and verdict, and the settings in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safelight.comparison import describe_signals, differing_settings, levels_of, result_of
from safelight.errors import RecordError, SafelightError
from safelight.pages.data.cards import RuleFindings, findings
from safelight.pages.data.gallery import MAX_PICTURES, locate, pictures
from safelight.pages.data.numbers import as_float, trimmed
from safelight.pages.data.overview import open_run_history, read_settings, status, summary
from safelight.pages.data.run_state import read_status
from safelight.pages.data.runs import FoundRun
from safelight.pages.data.trend import distance_name, distance_of
from safelight.ranking import Result, rank
from safelight.record.dump import describe
from safelight.vocabulary import LOSS, SKILL_EMA

SECONDS = 5.0  # for one run of many
UNKNOWN = ("finding", "thumbnail", "distance", "distance_name", "loss", "skill")  # until the record was read
QUIET_SETTINGS = ("data.cache", "data.workers", "data.scan_workers")  # where and how fast, not what


def entry(found: FoundRun, diagnosed: RuleFindings = None) -> dict[str, Any]:
    """One run of the list. `diagnosed`: what the rules found, if they ran since it ended."""
    run_status = read_status(found.folder)
    shown = summary(found, run_status) | dict.fromkeys(UNKNOWN)
    try:
        with open_run_history(found.folder, SECONDS) as history:
            cards = findings(found.folder, history, run_status, diagnosed=diagnosed)
            worst = next((card for card in cards if card["over"] is None and card["severity"] != "info"), None)
            newest = locate(found.folder, reversed(history.pictures("samples", most=MAX_PICTURES)))
            shown |= {
                "finding": worst and {key: worst[key] for key in ("code", "cause", "severity")},
                "thumbnail": next((picture.id for picture in newest), None),
                "distance": distance_of(history, run_status.facts),
                "loss": as_float(describe(history, LOSS.name).get("recent")),
                "skill": as_float((history.last(SKILL_EMA.name) or (None, None))[1]),
                "distance_name": distance_name(history, run_status.facts),
            }
            return shown | status(run_status, history, cards)
    except RecordError:
        return shown | status(run_status, None, [])


def unread_entry(found: FoundRun) -> dict[str, Any]:
    """A run of the list whose record was not read yet: what run.json says of it. `pending`: the rest comes."""
    run_status = read_status(found.folder)
    waiting = {"tone": "waiting", "sentence": "Reading its record …"}
    shown = summary(found, run_status) | dict.fromkeys(UNKNOWN) | {"pending": True}
    return shown | status(run_status, None, [], waiting)


def compare_runs(runs: Sequence[FoundRun]) -> dict[str, Any]:
    """{"verdict": see `rank`, "settings": {key: [values]} where they differ, "levels": see `levels_of`, "runs": [a line
    of the list with signals and pictures each]}."""
    differing = differing_settings([read_settings(run.folder)[0] for run in runs])
    settings = {key: values for key, values in differing.items() if key not in QUIET_SETTINGS}
    standings = [_standing(run) for run in runs]
    verdict = rank([result for result, _ in standings])
    levels = [
        {"level": rows[0]["level"], **{kind: [row[kind][0] for row in rows] for kind in ("losses", "skills")}}
        for rows in zip(*(levels for _, levels in standings), strict=True)
    ]
    shared = {"verdict": trimmed(verdict), "settings": settings, "levels": trimmed(levels)}
    return shared | {"runs": [entry(run) | _signals_and_pictures(run) for run in runs]}


def _standing(run: FoundRun) -> tuple[Result, list[dict[str, Any]]]:
    """What a run has come to, and its noise levels; what a record that cannot be read does not say is missing."""
    facts = read_status(run.folder).facts
    try:
        with open_run_history(run.folder, SECONDS) as history:
            return result_of(facts, history, run.name), levels_of([history])
    except SafelightError:
        return result_of(facts, None, run.name), levels_of([None])


def _signals_and_pictures(run: FoundRun) -> dict[str, Any]:
    try:
        with open_run_history(run.folder) as history:
            signals, shown = trimmed(describe_signals(history)), pictures(history, run.folder, run.id)
            return {"signals": signals, "pictures": shown}
    except SafelightError:
        return {"signals": {}, "pictures": []}
