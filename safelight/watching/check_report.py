"""What a check of a model found: a table of numbers, each ok, a finding or not looked at, with advice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from safelight.diagnosis import Diagnosis, Finding
from safelight.words import round_number

State = Literal["ok", "outside", "finding", "not looked at"]
"""`outside`: not finite, or not as in a healthy loop, and no rule says that this is wrong."""
REMARKS = "Remarks, on what may be a choice (they never fail a check):"
EDGE = 0.05  # of a range that images have: a batch need not reach its ends


@dataclass(frozen=True, slots=True)
class Row:
    """One number."""

    part: str
    """output, gradients, timesteps, labels, schedule, images, samples, optimizer or memory."""
    name: str
    value: float | str | None
    state: State = "ok"
    note: str = ""
    """The healthy range, the code of the finding, or why it was not looked at."""
    readings: tuple[str, ...] = ()
    """Signals that a finding on this row has among its evidence."""

    @property
    def shown(self) -> str:
        if self.value is None:
            return "-"
        return self.value if isinstance(self.value, str) else f"{round_number(self.value):g}"

    def to_json(self) -> dict[str, Any]:
        value = self.value
        finite = None if isinstance(value, float) and not math.isfinite(value) else value
        return {"part": self.part, "name": self.name, "value": finite, "state": self.state, "note": self.note}


def state_of(value: float, usual: str = "") -> State:
    """`usual`: what a healthy loop has, such as `below 1`, `about 1` or `-1`; nothing where any finite number is."""
    word, _, number = usual.rpartition(" ")
    within = math.isfinite(value)
    if within and number:
        limit = float(number)
        ranges = {"below": value < limit, "above": value > limit}
        within = ranges.get(word.rpartition(" ")[2], abs(value - limit) <= EDGE)
    return "ok" if within else "outside"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """`str` of it is the table."""

    rows: tuple[Row, ...]
    diagnosis: Diagnosis

    @property
    def findings(self) -> list[Finding]:
        return self.diagnosis.findings

    @property
    def verdict(self) -> str:
        return self.diagnosis.verdict

    @property
    def is_ok(self) -> bool:
        """Whether no row is a finding."""
        return all(row.state != "finding" for row in self.rows)

    def narrowed(self, diagnosis: Diagnosis) -> CheckReport:
        """With some findings left out: their rows are no longer marked."""
        left_out = {each.code for each in self.findings} - {each.code for each in diagnosis.findings}

        def unmarked(row: Row) -> Row:
            codes = {each.partition(" ")[0] for each in row.note.split(", ")}
            if row.state != "finding" or not codes <= left_out:
                return row
            return replace(row, state="not looked at", note=f"{row.note}: ignored, or known before")

        return CheckReport(tuple(map(unmarked, self.rows)), diagnosis)

    def to_json(self) -> dict[str, Any]:
        return {"rows": [row.to_json() for row in self.rows], **self.diagnosis.to_json()}

    def __str__(self) -> str:
        return "\n".join((*lines_of_rows(self.rows), "", self.verdict, *lines_of_findings(self.findings)))


def lines_of_rows(rows: Sequence[Row]) -> list[str]:
    widths = [max((len(getattr(row, cell)) for row in rows), default=0) for cell in ("part", "name", "shown")]
    lines = []
    for before, row in zip((None, *rows), rows, strict=False):
        part = row.part if before is None or before.part != row.part else ""
        cells = (part.ljust(widths[0]), row.name.ljust(widths[1]), row.shown.rjust(widths[2]), row.state)
        lines.append("  ".join((*cells, row.note) if row.note else cells).rstrip())
    return lines


def lines_of_findings(findings: Sequence[Finding]) -> list[str]:
    """Remarks (info) under a heading of their own: they are on what may be a choice, and fail nothing."""
    lines, remarks = [], [each for each in findings if each.severity == "info"]
    for finding in [*(each for each in findings if each.severity != "info"), *remarks]:
        if remarks and finding is remarks[0]:
            lines += ["", REMARKS]
        lines += ["", f"{finding.code}  {finding.summary}", f"  do  {finding.fix.text}"]
    return lines


def with_findings(rows: Sequence[Row], findings: Sequence[Finding]) -> tuple[Row, ...]:
    """The rows that prove a finding are marked; a finding that no row shows gets one of its own. A remark (info) on
    what may be a choice marks nothing."""
    marked = list(rows)
    for finding in (each for each in findings if each.severity != "info"):
        signals = {each.signal for each in finding.evidence}
        places = [place for place, row in enumerate(marked) if signals & set(row.readings)]
        for place in places:
            row = marked[place]
            note = _proof(row, finding)
            note = note if row.state != "finding" else f"{row.note}, {note}"
            marked[place] = replace(row, state="finding", note=note)
        if not places:
            first = finding.evidence[0] if finding.evidence else None
            value = None if first is None else first.value
            marked.append(Row(finding.cause.partition(".")[0], finding.cause, value, "finding", finding.code))
    return tuple(marked)


def _proof(row: Row, finding: Finding) -> str:
    """The code; with the number that proves it where the one that is shown looks healthy."""
    other = next((each for each in finding.evidence if each.signal in row.readings[1:]), None)
    if row.state != "ok" or other is None or isinstance(other.value, str):
        return finding.code
    return f"{finding.code} ({other.signal.removeprefix('check/')} {round_number(other.value):g})"
