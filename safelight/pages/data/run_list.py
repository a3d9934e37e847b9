"""The list of runs: a line for each, with its state, its verdict and its newest picture."""

from __future__ import annotations

from typing import Any

from safelight.errors import RecordError
from safelight.pages.data.cards import Answers, findings
from safelight.pages.data.gallery import MOST, locate
from safelight.pages.data.overview import open_run_history, status, summary
from safelight.pages.data.run_state import read_status
from safelight.pages.data.runs import FoundRun
from safelight.pages.data.trend import distance_of
from safelight.record.history import History

SECONDS = 5.0  # for one run of many


def entry(found: FoundRun, diagnosed: Answers = None) -> dict[str, Any]:
    """One run of the list. `diagnosed`: what the rules found, if they ran since it ended."""
    standing = read_status(found.folder)
    shown = summary(found, standing) | {"finding": None, "thumbnail": None, "distance": None}
    try:
        with open_run_history(found.folder, SECONDS) as history:
            cards = findings(found.folder, history, standing, diagnosed=diagnosed)
            worst = next((card for card in cards if card["over"] is None and card["severity"] != "info"), None)
            return shown | status(standing, history, cards) | {
                "finding": None if worst is None else {key: worst[key] for key in ("code", "cause", "severity")},
                "thumbnail": _thumbnail(found, history),
                "distance": distance_of(history),
            }  # fmt: skip
    except RecordError:
        return shown | status(standing, None, [])


def _thumbnail(found: FoundRun, history: History) -> str | None:
    newest = reversed(history.pictures("samples", most=MOST))
    return next((picture.id for picture in locate(found.folder, newest)), None)
