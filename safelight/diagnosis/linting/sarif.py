"""SARIF 2.1.0: findings as code scanners and editors read them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from safelight import __version__
from safelight.diagnosis.doctor import Diagnosis
from safelight.diagnosis.finding import Finding, Severity
from safelight.diagnosis.linting.selection import family_of
from safelight.diagnosis.rule import Rule
from safelight.diagnosis.rules import RULES

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}


def to_sarif(diagnosis: Diagnosis, subject: str, line: int = 1, *, compared: bool = False) -> dict[str, Any]:
    """`subject`: the script, the log or the run, by a path from the root of the project; `line` of a script.
    `compared` with a baseline: each result says whether it is new."""
    places = {rule.code: place for place, rule in enumerate(RULES)}
    states = [("new", diagnosis.findings), ("unchanged", diagnosis.known)]
    results = [
        _result(finding, places[finding.code], subject, line, state if compared else None)
        for state, findings in states
        for finding in findings
    ]
    driver = {"name": "Safelight", "version": __version__, "rules": [_descriptor(rule) for rule in RULES]}
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": True}],
        "results": results,
        "properties": {
            "verdict": diagnosis.verdict,
            "rules": diagnosis.coverage.rules,
            "looked": diagnosis.coverage.looked,
        },
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _descriptor(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.cause,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": f"{rule.what} {rule.why}"},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"tags": [family_of(rule), rule.cause.partition(".")[0]]},
    }


def _result(finding: Finding, place: int, subject: str, line: int, state: str | None) -> dict[str, Any]:
    over = "" if finding.over is None else f" It is over since step {finding.over:,}."
    where = {"artifactLocation": {"uri": uri_of(subject)}, "region": {"startLine": line}}
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": place,
        "level": LEVELS["info" if finding.over is not None else finding.severity],
        "message": {"text": f"{finding.summary}{over} {finding.fix.text}"},
        "locations": [{"physicalLocation": where}],
        "partialFingerprints": {"safelight/v1": _fingerprint(finding.cause, subject)},
        "properties": {"cause": finding.cause, "step": finding.step, "confidence": finding.confidence},
    }
    return result if state is None else {**result, "baselineState": state}


def uri_of(subject: str) -> str:
    """A path as SARIF wants it: with slashes, what is special escaped, absolute ones as file://."""
    path = PurePath(subject)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def _fingerprint(*parts: Sequence[str] | str) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]
