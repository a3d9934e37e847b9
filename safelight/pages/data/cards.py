"""What is wrong with a run, as cards show it: the finding, what was done about it, and the command that fixes it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from safelight.config.resolve import types_of_fields
from safelight.diagnosis import diagnose
from safelight.diagnosis.blamed_batch import MOST_SAMPLES, NUMBERS
from safelight.diagnosis.finding import ORDER, subsystem_of, urgency
from safelight.diagnosis.rules import RULES
from safelight.pages.data.numbers import as_dict, as_float, as_int, as_list, as_str, trimmed
from safelight.pages.data.run_files import plain_file_inside
from safelight.pages.data.run_state import RunStatus
from safelight.record.history import History
from safelight.run import RunFolder

RuleFindings = list[dict[str, Any]] | None
TITLES = {rule.code: rule.title for rule in RULES}
MAX_FINDINGS, MAX_DIAGNOSED_BYTES = 200, 64 << 20  # bytes of a record that is diagnosed again, about a second
HEALED_BY = {  # the acts of heal, and the families of findings that each answers
    "lower-rate": {"loss", "lr", "optimizer"},
    "quarantine": {"data", "loss"},
    "change-precision": {"precision", "loss"},
    "halve-batch": {"system"},
    "restore-mode": {"mode"},
    "redo": {"system", "loss"},
}


def findings(
    run: RunFolder, history: History, run_status: RunStatus, *, diagnosed: RuleFindings = None, name: str | None = None
) -> list[dict[str, Any]]:
    """The worst first, and what is over last: as recorded during training, unless the rules ran
    again since (`diagnosed`). `name`: what the run is called in commands."""
    found = diagnosed
    if found is None:  # the newest of each code; one that is over says so
        newest = {note.name: note.facts for note in history.findings(most=MAX_FINDINGS) if isinstance(note.facts, dict)}
        found = list(newest.values())
    journal = acts(run_status)
    shown = [card(each, run, journal, name or str(run.path)) for each in found]
    return sorted(shown, key=lambda f: urgency(f["over"], f["severity"], f["step"]))


def acts(run_status: RunStatus) -> list[dict[str, Any]]:
    """The journal of healing."""
    return [act for act in trimmed(as_list(run_status.facts.get("journal"), MAX_FINDINGS)) if isinstance(act, dict)]


def should_run_rules(run_status: RunStatus) -> bool:
    """Whether the rules decide: for a run that ended, as with `safelight doctor`. A running one records
    its findings, and the preflight knows more than it records."""
    return run_status.is_over and run_status.state != "refused"


def run_rules(run: RunFolder) -> RuleFindings:
    """What all rules find, as `safelight doctor` does; None if the record is too long to be read in a moment."""
    record = plain_file_inside(run.path, run.record.name)
    try:
        short = record is not None and record.stat().st_size <= MAX_DIAGNOSED_BYTES
        return [finding.to_json() for finding in diagnose(run.path)] if short else None
    except Exception:  # an untrusted record may raise anything; the page shows what was recorded
        return None


def card(found: dict[str, Any], run: RunFolder, journal: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """A finding with every field checked: the record may be untrusted."""
    code, cause = as_str(found.get("code"), 20) or "", as_str(found.get("cause"), 100) or "unknown"
    subsystem, severity, fix = subsystem_of(cause), found.get("severity"), as_dict(found.get("fix"))
    settings, safety = trimmed(as_dict(fix.get("set"))), as_str(fix.get("safety"), 20)
    return {
        "code": code,
        "title": TITLES.get(code),
        "cause": cause,
        "subsystem": subsystem,
        "severity": severity if severity in ORDER else "info",
        "step": as_int(found.get("step")) or 0,
        "over": as_int(found.get("over")),
        "confidence": as_float(found.get("confidence")),
        "summary": as_str(found.get("summary")) or "",
        "evidence": [_evidence(each) for each in as_list(found.get("evidence"), 20) if isinstance(each, dict)],
        "fix": {"text": as_str(fix.get("text")) or "", "set": settings, "safety": safety},
        "batch": _batch(found.get("batch")),
        "ruled_out": [as_str(each) or "" for each in as_list(found.get("ruled_out"), 20)],
        "healed": [act for act in journal if subsystem in HEALED_BY.get(str(act.get("kind")), ())],
        "command": command(run, name, settings, safety),
    }


def _batch(found: Any) -> dict[str, Any] | None:
    batch = as_dict(found)
    step = as_int(batch.get("step"))
    if step is None:
        return None
    numbers = {name: {key: as_float(value) for key, value in as_dict(batch.get(name)).items() if key in NUMBERS}
               for name in ("images", "prediction")}  # fmt: skip
    return numbers | {
        "step": step,
        "samples": [as_int(each) for each in as_list(batch.get("samples"), MOST_SAMPLES)],
        "timesteps": [as_float(each) for each in as_list(batch.get("timesteps"), MOST_SAMPLES)],
    }


def _evidence(found: dict[str, Any]) -> dict[str, Any]:
    steps, value = [as_int(step) for step in as_list(found.get("steps"))], found.get("value")
    return {
        "signal": as_str(found.get("signal"), 200) or "",
        "value": as_str(value, 500) if isinstance(value, str) else as_float(value),
        "steps": steps if len(steps) == 2 and None not in steps else None,
        "usual": as_str(found.get("usual"), 500),
    }


def command(run: RunFolder, name: str, settings: dict[str, Any], safety: str | None) -> str | None:
    """The command to run: a resume where the change is safe, a new run where it changes what the run means.

    Only settings that exist, and every word quoted: the record may be untrusted, and this is pasted into a shell.
    """
    if not settings or not settings.keys() <= types_of_fields().keys() or not run.config.is_file():
        return None
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={_word(value)}")]
    if safety == "safe":
        words = ["safelight", "resume", name, *words, "--force"]
    else:
        words = ["safelight", "train", "--config", f"{name}/{run.config.name}", *words]
    return None if any(not word.isprintable() for word in words) else shlex.join(words)


def _word(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"[{', '.join(map(_word, value))}]" if isinstance(value, list) else str(value)
