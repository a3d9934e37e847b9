"""Findings that were known before: a file of them, so that only new ones count."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from safelight.diagnosis.doctor import Diagnosis
from safelight.diagnosis.finding import ORDER, Finding
from safelight.errors import UsageError
from safelight.files.reading import read_anything
from safelight.outputs import write_output

VERSION = 1
MAX_BASELINE_BYTES = 16 << 20  # bytes
Known = dict[tuple[str, str], str]
"""By subject and cause, the severity that was known."""


def read_baseline(path: Path) -> Known:
    try:
        content = read_anything(path, MAX_BASELINE_BYTES + 1)
        if len(content) > MAX_BASELINE_BYTES:
            raise UsageError(f"{path} is too large for a baseline.")
        found = json.loads(content)
    except OSError as error:
        raise UsageError(
            f"The baseline {path} cannot be read: {error.strerror}. Write one first, with --write-baseline."
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The baseline {path} is not JSON: {error}. Write it anew, with --write-baseline.") from error
    entries = found.get("findings") if isinstance(found, dict) else None
    if not isinstance(entries, list) or found.get("version") != VERSION or not all(map(_is_entry, entries)):
        raise UsageError(f"{path} is not a baseline of version {VERSION}. Write it anew, with --write-baseline.")
    return {(entry["subject"], entry["cause"]): entry["severity"] for entry in entries}


def _is_entry(entry: Any) -> bool:
    texts = isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("subject", "cause", "code"))
    return texts and entry.get("severity") in ORDER


def write_baseline(path: Path, findings: Iterable[Finding], subject: str = "") -> None:
    """What is there of other subjects stays. `subject`: the script, by a path that is the same for everyone; empty for
    runs, which have another name each time."""
    known = {key: value for key, value in _old(path).items() if key[0] != subject}
    found = {(subject, each.cause): each for each in findings}
    entries = [{"subject": s, "code": code_of(c), "cause": c, "severity": v} for (s, c), v in known.items()]
    entries += [{"subject": subject, "code": f.code, "cause": f.cause, "severity": f.severity} for f in found.values()]
    entries.sort(key=lambda entry: (entry["subject"], entry["code"], entry["cause"]))
    content = json.dumps({"version": VERSION, "findings": entries}, indent=1) + "\n"
    write_output(path, content.encode(), "--baseline")


def _old(path: Path) -> Known:
    return read_baseline(path) if path.is_file() else {}


def code_of(cause: str) -> str:
    from safelight.diagnosis.rules import RULES

    return next((rule.code for rule in RULES if rule.cause == cause), "")


def apply(diagnosis: Diagnosis, known: Known, subject: str = "") -> Diagnosis:
    """Findings that were known before, and are no worse now, are kept apart: they do not fail anything."""

    def is_known(finding: Finding) -> bool:
        before = known.get((subject, finding.cause))
        return before is not None and ORDER.index(before) <= ORDER.index(finding.severity)

    old = [finding for finding in diagnosis.findings if is_known(finding)]
    new = [finding for finding in diagnosis.findings if not is_known(finding)]
    return replace(diagnosis, findings=new, known=(*diagnosis.known, *old))
