"""The page of symptoms, docs/symptoms.md, written from the table that `safelight explain` searches.

python -m tools.symptoms_reference            # writes docs/symptoms.md
python -m tools.symptoms_reference --check    # exits 1 if the file on disk differs
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from safelight.diagnosis.symptoms import SYMPTOMS, Symptom

PAGE = Path("docs/symptoms.md")
COMMAND = "python -m tools.symptoms_reference"


def page() -> str:
    """The whole of docs/symptoms.md."""
    head = [
        "# Symptoms",
        "",
        f"<!-- Written by `{COMMAND}` from safelight/diagnosis/symptoms.py. Do not edit by hand. -->",
        "",
        "For each symptom: where Safelight shows it, what to do, and which findings may be the cause.",
        "`safelight doctor RUN` says which of them it is, with the readings that prove it. `safelight explain plateau`",
        "prints a section of this page. All findings are on the page [Diagnosis](diagnosis.md).",
        "",
    ]
    return "\n".join([*head, *(line for symptom in SYMPTOMS for line in _section(symptom))])


def _section(symptom: Symptom) -> list[str]:
    findings = [f"- {rule.code} {rule.cause}: {rule.title}" for rule in symptom.rules]
    return [
        f"## {symptom.name}",
        "",
        f"Also called: {symptom.words.replace('|', ', ')}.",
        "",
        f"Where it shows: {symptom.shows}.",
        "",
        f"What to do: {symptom.do}",
        "",
        "Findings, the most likely cause first:",
        "",
        *findings,
        "",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the page, or with --check says whether the one on disk is up to date."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Write the page of symptoms.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file differs")
    parser.add_argument("file", nargs="?", type=Path, default=PAGE, help=f"the page ({PAGE})")
    given = parser.parse_args(arguments)
    if not given.check:
        given.file.write_text(page(), encoding="utf-8")
        return 0
    if given.file.is_file() and given.file.read_text(encoding="utf-8") == page():
        return 0
    print(f"{given.file} is out of date. Write it: {COMMAND}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
