"""What is wrong with a run, as cards show it: the finding, what was done about it, and the command that fixes it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from safelight.config.resolve import types_of_fields
from safelight.diagnosis import diagnose
from safelight.diagnosis.finding import ORDER, subsystem_of, urgency
from safelight.diagnosis.rules import RULES
from safelight.errors import SafelightError
from safelight.pages.data.numbers import count, number, text, trimmed
from safelight.pages.data.run_files import inside
from safelight.pages.data.run_state import RunStatus
from safelight.record.history import History
from safelight.run import RunFolder

Answers = list[dict[str, Any]] | None
TITLES = {rule.code: rule.title for rule in RULES}
MOST, LARGEST_DIAGNOSED = 200, 64 << 20  # bytes of a record that is diagnosed again, about a second
ANSWERS = {  # the acts of heal, and the families of findings that each answers
    "lower-rate": {"loss", "lr", "optimizer"},
    "quarantine": {"data", "loss"},
    "change-precision": {"precision", "loss"},
    "halve-batch": {"system"},
    "restore-mode": {"mode"},
    "redo": {"system", "loss"},
}


def findings(
    run: RunFolder, history: History, standing: RunStatus, *, diagnosed: Answers = None, name: str | None = None
) -> list[dict[str, Any]]:
    """The worst first, and what is over last: as recorded during training, unless the rules ran
    again since (`diagnosed`). `name`: what the run is called in commands."""
    found = _recorded(history) if diagnosed is None else diagnosed
    journal = acts(standing)
    shown = [card(each, run, journal, name or str(run.path)) for each in found]
    return sorted(shown, key=lambda f: urgency(f["over"], f["severity"], f["step"]))


def acts(standing: RunStatus) -> list[dict[str, Any]]:
    """The journal of healing."""
    journal = standing.facts.get("journal")
    found = trimmed(journal[:MOST]) if isinstance(journal, list) else []
    return [act for act in found if isinstance(act, dict)]


def is_diagnosed(standing: RunStatus) -> bool:
    """Whether the rules decide: for a run that ended, as with `safelight doctor`. A running one records
    its findings, and the preflight knows more than it records."""
    return standing.is_over and standing.state != "refused"


def run_rules(run: RunFolder) -> Answers:
    """What all rules find, as `safelight doctor` does; None where the record is too long to be read in a moment."""
    record = inside(run.path, run.record.name)
    try:
        if record is None or record.stat().st_size > LARGEST_DIAGNOSED:
            return None
        return [finding.to_json() for finding in diagnose(run.path)]
    except (SafelightError, OSError, ValueError, TypeError, MemoryError, RecursionError):
        return None


def _recorded(history: History) -> list[dict[str, Any]]:
    """The newest of each code; one that is over says so."""
    newest = {note.name: note.facts for note in history.findings(most=MOST) if isinstance(note.facts, dict)}
    return list(newest.values())


def card(found: dict[str, Any], run: RunFolder, journal: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """A finding with every field checked: the record may be untrusted."""
    cause = text(found.get("cause"), 100) or "unknown"
    severity = found.get("severity")
    fix = found["fix"] if isinstance(found.get("fix"), dict) else {}
    step = count(found.get("step")) or 0
    settings = trimmed(fix["set"]) if isinstance(fix.get("set"), dict) else {}
    evidence = found.get("evidence")
    ruled_out = found.get("ruled_out")
    return {
        "code": text(found.get("code"), 20) or "",
        "title": TITLES.get(text(found.get("code"), 20) or ""),
        "cause": cause,
        "subsystem": subsystem_of(cause),
        "severity": severity if severity in ORDER else "info",
        "step": step,
        "over": count(found.get("over")),
        "confidence": number(found.get("confidence")),
        "summary": text(found.get("summary")) or "",
        "evidence": [_evidence(e) for e in evidence[:20] if isinstance(e, dict)] if isinstance(evidence, list | tuple)
        else [],
        "fix": {"text": text(fix.get("text")) or "", "set": settings, "safety": text(fix.get("safety"), 20)},
        "ruled_out": [text(each) or "" for each in ruled_out[:20]] if isinstance(ruled_out, list | tuple) else [],
        "healed": [act for act in journal if subsystem_of(cause) in ANSWERS.get(str(act.get("kind")), ())],
        "command": command(run, name, settings, text(fix.get("safety"), 20)),
    }  # fmt: skip


def _evidence(found: dict[str, Any]) -> dict[str, Any]:
    steps = found.get("steps")
    whole = [count(step) for step in steps] if isinstance(steps, list | tuple) and len(steps) == 2 else [None]
    value = found.get("value")
    return {
        "signal": text(found.get("signal"), 200) or "",
        "value": text(value, 500) if isinstance(value, str) else number(value),
        "steps": None if None in whole else whole,
        "usual": text(found.get("usual"), 500),
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
