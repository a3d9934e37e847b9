"""The report of a checked script: what was recognised, numbers, every rule, findings, and the exit code."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safelight import checks
from safelight.checks import ProbeReading
from safelight.diagnosis import Diagnosis, diagnose_run
from safelight.diagnosis.coverage import Coverage
from safelight.diagnosis.linting.checklist import ChecklistLine, checklist, grouped, to_json
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.run_history import RunHistory, name_of
from safelight.errors import RecordError
from safelight.record.history import open_history
from safelight.run import RunFolder
from safelight.vocabulary import GRADIENT_NORM, LEARNING_RATE, LOSS
from safelight.watching.check_readings import rows_of_readings
from safelight.watching.check_report import Row, lines_of_findings, lines_of_rows, state_of, with_findings
from safelight.watching.scripts.notes import Notes
from safelight.words import lower_first, printable_lines

FINE, UNKNOWN, FOUND = 0, 3, 5
WIDTH = 110
IN_BATCHES = {
    checks.DATA_LOWEST: checks.BATCH_LOWEST,
    checks.DATA_HIGHEST: checks.BATCH_HIGHEST,
    checks.DATA_MEAN: checks.BATCH_MEAN,
    checks.DATA_STD: checks.BATCH_STD,
}
ENDINGS = {
    "itself": "ended by itself after {} updates",
    "stopped": "stopped after {} updates",
    "swallowed": "ended after {} updates, although it caught what should have stopped it (`except BaseException`)",
    "late": "ended after {} updates: it was still busy a minute after it was stopped",
}


@dataclass(frozen=True, slots=True)
class Unknown:
    """What was not recognised of a loop, and the families of rules that have nothing to compare with then."""

    reason: str
    words: str
    families: tuple[str, ...]

    def without(self, coverage: Coverage, found: Container[str] = ()) -> Coverage:
        """`found`: codes of rules that found something all the same."""
        codes = [rule.code for rule in RULES if rule.code.startswith(self.families)]
        codes = [code for code in codes if code not in WHATEVER and code not in found]
        new = {code: self.reason for code in codes if code not in coverage.missing and code not in coverage.unable}
        return coverage._replace(looked=coverage.looked - len(new), unable={**coverage.unable, **new})


WHATEVER = ("TAR010",)  # looks at gradients of a target, whatever it is
NO_PROCESS = Unknown(
    "process and target were not recognised",
    "It is not known which process and target are trained: rules on noise and time could not look.",
    ("FOR", "TIM", "TAR"),
)
NO_TARGET = Unknown(
    "the target was not recognised",
    "It is not known which target is trained: rules on targets could not look.",
    ("TAR",),
)


@dataclass(frozen=True, slots=True)
class ScriptReport:
    """`diagnosis` is None if nothing was trained."""

    target: str
    notes: Notes
    code: int
    """The exit code of the script's process."""
    diagnosis: Diagnosis | None = None
    rows: tuple[Row, ...] = ()
    rules: tuple[ChecklistLine, ...] = ()
    is_recognised: bool = False
    """Process and target are known, also to the rules on them."""
    unknown: Unknown = NO_PROCESS
    """What is not, where it is not recognised."""

    @property
    def is_known(self) -> bool:
        """Process and target are: to rules, or to the capture alone, as where a sample has two numbers."""
        return self.is_recognised or self.notes.is_known

    @property
    def has_failed(self) -> bool:
        """By itself: what a script does after it was stopped is not judged."""
        return self.code != 0 and self.notes.ending == "itself"

    def exit_code(self, strict: bool = False) -> int:
        if self.has_failed:
            return self.code
        if self.diagnosis is None:
            return UNKNOWN
        worst = {each.severity for each in self.diagnosis.findings if each.over is None}
        if "error" in worst or (strict and "warning" in worst):
            return FOUND
        return FINE if self.is_known else UNKNOWN

    @property
    def verdict(self) -> str:
        """Nothing can be passed to a script that is not edited: the advice on that is left out."""
        if self.diagnosis is None:
            why = self.notes.recognised or ("no optimizer of torch made an update.",)
            return f"Nothing could be checked: {why[0]}"
        words = replace(self.diagnosis, watched=False).verdict
        if not self.is_recognised and not self.diagnosis.findings:
            words += (
                " Process and target are known, but rules on them could not look: samples are too small or too few."
                if self.notes.is_known
                else f" {self.unknown.words}"
            )
        return words

    def to_json(self, strict: bool = False) -> dict[str, Any]:
        found = {} if self.diagnosis is None else replace(self.diagnosis, watched=False).to_json()
        return {
            "script": self.target,
            "exit_code": self.exit_code(strict),
            "script_exit_code": self.code,
            "updates": self.notes.updates,
            "ending": self.notes.ending,
            "recognised": list(self.notes.recognised),
            "rows": [row.to_json() for row in self.rows],
            "rules": to_json(self.rules),
            "findings": [],
            "coverage": None,
            **found,
            "verdict": self.verdict,
        }

    def words(self, *, quiet: bool = False, every_rule: bool = False) -> str:
        """`every_rule`: on a line of its own. Names of classes and parameters may hold anything."""
        return printable_lines(self._words(quiet=quiet, every_rule=every_rule))

    def _words(self, *, quiet: bool, every_rule: bool) -> str:
        if self.diagnosis is None:
            failed = f" The script left with exit code {self.code}." if self.has_failed else ""
            return f"{self.target}: {lower_first(self.verdict)}{failed}"
        findings = [] if self.diagnosis is None else self.diagnosis.findings
        ending = ENDINGS[self.notes.ending].format(self.notes.updates)
        failed = f", with exit code {self.code}" if self.code else ""
        lines = [f"{self.target}: {ending}{failed}."]
        if not quiet:
            lines += ["", *self.notes.recognised] if self.notes.recognised else []
            lines += ["", *lines_of_rows(self.rows), ""] if self.rows else []
            remarks = {each.code for each in findings if each.severity == "info"}
            lines += lines_of_each(self.rules) if every_rule else lines_of_rules(self.rules, remarks)
            lines += [f"note: {each}" for each in self.notes.said if each.startswith("Safelight's watch")]
        return "\n".join((*lines, "", self.verdict, *lines_of_findings(findings)))


def lines_of_each(rules: Sequence[ChecklistLine]) -> list[str]:
    return [f"{each.state:<13}  {each.code}  {each.cause}  {each.reason}".rstrip() for each in rules]


def lines_of_rules(rules: Sequence[ChecklistLine], remarks: Container[str] = ()) -> list[str]:
    """All of them by their codes, `safelight explain CODE` has the page of each. `remarks`: codes of such findings."""
    lines = [f"{len(rules)} rules; `safelight explain CODE` shows what one looks for"]
    for each in rules:
        if each.state == "found":
            state = "remark" if each.code in remarks else "found"
            lines.append(f"  {state:<13}  {each.code}  {each.cause}: {each.title}")
    for state in ("known", "explained", "passed", "not looked at"):
        for reason, codes in grouped(rule for rule in rules if rule.state == state).items():
            head = f"  {state:<13}  {len(codes):>3}  "
            text = " ".join((f"{reason}:", *codes) if reason else codes)
            lines += textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
    return lines


def report_on(
    target: str,
    run: Path,
    notes: Notes | None,
    code: int,
    narrow: Callable[[Diagnosis], Diagnosis] = lambda found: found,
) -> ScriptReport:
    """From the record that the script left; a process that was killed leaves no notes. `narrow`: to what counts."""
    folder = RunFolder(run)
    notes_of_run = notes or Notes(int(folder.status().get("step", 0)))
    if not notes_of_run.updates or not folder.record.is_file():
        return ScriptReport(target, notes_of_run, code)
    try:
        diagnosis = narrow(diagnose_run(run))
        with open_history(folder.record) as readings:
            history = RunHistory(readings, status=folder.status())
            rows = with_findings(rows_from(history), diagnosis.findings)
            recognised = bool(readings.events("recognised"))
            unknown = NO_TARGET if history.latest(checks.MIXTURE_PROCESS, -1.0) >= 0 else NO_PROCESS
            if not recognised:
                diagnosis = replace(diagnosis, coverage=unknown.without(diagnosis.coverage, _found(diagnosis)))
            rules = tuple(checklist(diagnosis, is_edited=False))
    except RecordError:
        return ScriptReport(target, notes_of_run, code)
    return ScriptReport(target, notes_of_run, code, diagnosis, rows, rules, recognised, unknown)


def _found(diagnosis: Diagnosis) -> set[str]:
    every = (*diagnosis.findings, *diagnosis.known, *(each.finding for each in diagnosis.explained))
    return {each.code for each in every}


def rows_from(history: RunHistory) -> list[Row]:
    def first(reading: ProbeReading) -> float | None:
        """The first reading: of a loop only its batches are known, not the data as a whole."""
        numbers = history.numbers(reading)
        if not len(numbers) and reading in IN_BATCHES:
            numbers = history.numbers(IN_BATCHES[reading])
        return float(numbers[0]) if len(numbers) else None

    rows: list[Row] = []
    for name, signal in (("loss", LOSS), ("norm of the gradient", GRADIENT_NORM), ("learning rate", LEARNING_RATE)):
        numbers = history.numbers(signal)
        if len(numbers):
            for when, number in (("first", float(numbers[0])), ("last", float(numbers[-1]))):
                rows.append(Row("training", f"{name}, {when}", number, state_of(number), "", (name_of(signal),)))
    return rows + rows_of_readings(first)
