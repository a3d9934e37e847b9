"""The table of all rules in docs/diagnosis.md, written from the rules themselves.

python -m tools.rules_reference            # rewrites the table
python -m tools.rules_reference --check    # exits 1 if the table on disk differs
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from safelight.diagnosis.rules import RULES

PAGE = Path("docs/diagnosis.md")
COMMAND = "python -m tools.rules_reference"
BEGIN, END = "<!-- rules -->", "<!-- /rules -->"


def table() -> str:
    """One row for each rule, in the order in which they are asked."""
    rows = [f"| {rule.code} | {rule.cause} | {rule.title} | {rule.similar} |" for rule in RULES]
    head = ["| code | cause | what | how it differs from similar findings |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])


def rewritten(page: str) -> str:
    """A page with the table of today between its two markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"The page has no {BEGIN} and {END}, between which the table belongs.")
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the table, or with --check says whether the one on disk is up to date."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Write the table of all rules.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the table differs")
    parser.add_argument("file", nargs="?", type=Path, default=PAGE, help=f"the page ({PAGE})")
    given = parser.parse_args(arguments)
    page = given.file.read_text(encoding="utf-8")
    if page == rewritten(page):
        return 0
    if given.check:
        print(f"{given.file} is out of date. Write it: {COMMAND}", file=sys.stderr)
        return 1
    given.file.write_text(rewritten(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
