"""The flags of a linter, for every command that ends in a diagnosis."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text
from tyro.conf import UseAppendAction, arg

from safelight.cli.flags import options
from safelight.errors import UsageError
from safelight.terminal import page

if TYPE_CHECKING:
    from safelight.diagnosis import Diagnosis

Names = Annotated[tuple[str, ...], UseAppendAction, arg(metavar="NAMES", help_behavior_hint="(repeatable)")]


@dataclass(frozen=True, slots=True)
class LintTarget:
    """What a diagnosis is about."""

    name: str
    """A path from the folder we are in."""
    script: Path | None = None
    """The Python file, whose comments count; runs and logs have none."""
    line: int = 1

    @property
    def key(self) -> str:
        """In a baseline. Runs have another name each time, scripts keep theirs."""
        return "" if self.script is None else Path(self.name).as_posix()


@dataclass(frozen=True, kw_only=True)
class LintFlags:
    select: Names = ()
    """Only these rules count: codes, families or causes, such as TAR001,EMA,lr. with commas between."""
    ignore: Names = ()
    """These rules do not count; named in the same way."""
    baseline: options.File = None
    """A file of findings that were known before: these do not fail."""
    write_baseline: bool = False
    """Write the findings of today into the baseline."""
    sarif: Annotated[str | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write SARIF 2.1.0 there, or - to print it."""
    all: bool = False
    """List every rule: found, passed, or not looked at and why."""
    json: options.Json = False

    def narrow(self, found: Diagnosis, subject: LintTarget) -> Diagnosis:
        """The findings that count and are new. Writes the baseline, if that was asked for."""
        from safelight.diagnosis.linting import baseline, selection

        if self.sarif == "-" and self.json:
            raise UsageError("--sarif - and --json both print to stdout. Leave one out, or give --sarif a file.")
        chosen = selection.load_selection(self.select, self.ignore, subject.script)
        kept = selection.apply(found, chosen)
        path = self.baseline or chosen.baseline
        if self.write_baseline:
            if path is None:
                raise UsageError("--write-baseline needs to know where: name the file with --baseline.")
            baseline.write_baseline(path, kept.findings, subject.key)
        return kept if path is None else baseline.apply(kept, baseline.read_baseline(path), subject.key)

    def write_sarif(self, found: Diagnosis, subject: LintTarget) -> bool:
        """Whether it took stdout."""
        if self.sarif is None:
            return False
        from safelight.diagnosis.linting.sarif import to_sarif
        from safelight.files import write_atomically

        text = json.dumps(to_sarif(found, subject.name, subject.line, compared=bool(self.baseline)), indent=1)
        if self.sarif == "-":
            print(text)
            return True
        try:
            write_atomically(Path(self.sarif), f"{text}\n".encode())
        except OSError as error:
            raise UsageError(
                f"{self.sarif} cannot be written: {error.strerror}. Choose another with --sarif."
            ) from error
        return False

    def listed(self, found: Diagnosis) -> dict[str, Any]:
        """What --all adds to JSON."""
        if not self.all:
            return {}
        from safelight.diagnosis.linting.checklist import checklist, to_json

        return {"rules": to_json(checklist(found))}

    def print_list(self, found: Diagnosis) -> None:
        if not self.all:
            return
        from safelight.diagnosis.linting.checklist import checklist, count

        lines, console = checklist(found), page()
        style = {
            "found": "bold red",
            "known": "yellow",
            "explained": "yellow",
            "passed": "green",
            "not looked at": "dim",
        }
        console.print()
        for line in lines:
            reason = f"  {line.reason}" if line.reason else ""
            name = f"  {line.code}  {line.cause}"
            console.print(Text.assemble((f"{line.state:<13}", style[line.state]), name, (reason, "dim")))
        console.print(Text(f"{len(lines)} rules: {count(lines)}."))


def relative(path: Path) -> str:
    """From the folder we are in, where that is possible."""
    try:
        return os.path.relpath(path)
    except ValueError:  # another drive
        return str(path)
