"""The run in one sentence: what is wrong with it, or that nothing is and which way it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safelight.pages.data.numbers import count, mapping, text
from safelight.pages.data.run_state import RunStatus
from safelight.pages.data.trend import BANDS, falling, newest_distance
from safelight.record.history import History

SENTENCE = 220  # characters of a finding's summary


def verdict(standing: RunStatus, history: History | None, findings: Sequence[dict[str, Any]]) -> dict[str, str]:
    """{"tone": good, attention, bad, waiting or ended, "sentence"}."""
    tone, sentence = _judge(standing, history, [each for each in findings if each["over"] is None])
    return {"tone": tone, "sentence": sentence}


def _judge(standing: RunStatus, history: History | None, present: list[dict[str, Any]]) -> tuple[str, str]:
    if standing.state == "empty":
        return "waiting", "Nothing has been recorded yet: the first numbers come with the first step."
    step, shown = f"{standing.step or 0:,}", _worst(present)
    reason = shown or text(standing.facts.get("last_finding"), 200)
    if standing.state == "crashed":
        return "bad", _crashed(standing, step)
    if standing.state == "stopped":
        return "bad", f"Stopped at step {step}: {reason or 'a diagnosis ended it'}"
    if standing.state == "refused":
        return "bad", f"Not trained: {reason or 'the preflight found an error'}"
    if standing.state == "stale":
        return "attention", _silent(standing, step)
    if shown is not None:
        return ("bad" if present[0]["severity"] == "error" else "attention"), shown
    if standing.state == "interrupted":
        return "ended", f"Interrupted at step {step}, everything is saved; `safelight resume` continues it."
    if history is None or not standing.step:
        return "waiting", "Getting ready: the first numbers come with the first step."
    if standing.is_over:
        return "ended", _finished(standing, history, step)
    return "good", _healthy(history)


def _worst(present: list[dict[str, Any]]) -> str | None:
    """The worst that is true now; remarks are no reason for worry."""
    words = next((each["summary"] or each["cause"] for each in present if each["severity"] != "info"), None)
    return words if words is None or len(words) <= SENTENCE else words[: SENTENCE - 1].rstrip() + "…"


def _healthy(history: History) -> str:
    bands, distance, parts = falling(history), newest_distance(history), list[str]()
    if bands is not None:
        where = "all noise levels" if len(bands) == len(BANDS) else " and ".join(bands)
        parts.append(f"loss still falling at {where}" if bands else "loss has levelled off")
    if distance is not None:
        parts.append(distance.words())
    return f"Healthy: {', '.join(parts)}." if parts else "Healthy so far: too early to see which way it goes."


def _finished(standing: RunStatus, history: History, step: str) -> str:
    distance, best = newest_distance(history), count(mapping(standing.facts.get("evaluation")).get("step"))
    if best is not None:
        measured = "" if distance is None else f" The last evaluation: {distance.words()}."
        return f"Finished at step {step}; the best checkpoint is that of step {best:,}.{measured}"
    return f"Finished at step {step}" + ("." if distance is None else f": {distance.words()}.")


def _crashed(standing: RunStatus, step: str) -> str:
    if standing.status == "out of memory":
        return f"Out of memory at step {step}. `safelight estimate` reports what fits."
    if standing.status == "unsaved":
        return f"Not saved at step {step}: make room on the disk, then `safelight resume`."
    error = text(standing.facts.get("error"), SENTENCE)
    return f"Crashed at step {step}" + (f": {error}" if error else ".")


def _silent(standing: RunStatus, step: str) -> str:
    if standing.age is None:
        return f"No sign of life at step {step}."
    if standing.age < 120:
        return f"No heartbeat for {standing.age:.0f} s at step {step}: busy with an evaluation, or killed."
    return f"No heartbeat for {_long(standing.age)}: probably killed at step {step}; `safelight resume` continues it."


def _long(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
