"""safelight doctor"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text
from tyro.conf import Positional, arg

from safelight.cli import options
from safelight.errors import PreflightError, UsageError
from safelight.run import is_run
from safelight.terminal import ACCENT, Terminal, page

if TYPE_CHECKING:
    from safelight.diagnosis import Diagnosis
    from safelight.diagnosis.finding import Evidence


@dataclass(frozen=True, kw_only=True)
class Command:
    """Report what is wrong and why: with a run, from its record, while it trains or after it ended; or with a data set
    and settings, before anything is trained."""

    subject: Annotated[str, Positional, arg(metavar="RUN|DATA")]
    """A run folder; or images as `train` takes them, for a preflight."""
    preset: options.Word = None
    """Of a preflight: digits, tiny, small or base."""
    config: options.File = None
    """Of a preflight: YAML file of settings, over the preset."""
    set: options.Settings = ()
    """Of a preflight: any setting, over everything else."""
    json: options.Json = False

    @property
    def data(self) -> str:
        return self.subject

    def run_command(self) -> None:
        from safelight.diagnosis import diagnose_run

        trained = is_run(Path(self.subject))
        if trained and (self.preset or self.config or self.set):
            words = "is a run, which has its settings. Leave out --preset, --config and --set."
            raise UsageError(f"{self.subject} {words}")
        found = diagnose_run(self.subject) if trained else self._preflight()
        if self.json:
            print(json.dumps(found.to_json(), indent=1))
        else:
            print_diagnosis(self.subject, found)
        if not trained and (errors := sum(finding.severity == "error" for finding in found.findings)):
            raise PreflightError(f"The preflight found {errors} error{'s' * (errors != 1)}.")

    def _preflight(self) -> Diagnosis:
        config = options.config_from(self)
        from safelight.start import check_before_training

        return check_before_training(config, Terminal())


def print_diagnosis(run: str, found: Diagnosis) -> None:
    """The verdict; of each finding what, since when, how sure, the evidence, what to do, what was ruled out."""
    console = page()
    console.print(Text(run, style=f"bold {ACCENT}"))
    console.print(Text(found.verdict))
    if found.progress is not None:
        console.print(Text(f"Progress: {found.progress.words()}"))
    if not found.findings:
        console.print(Text("`safelight explain` lists what the rules look for.", style="dim"))
    for finding in found.findings:
        style = {"error": "bold red", "warning": "bold yellow", "info": "bold"}[finding.severity]
        over = "" if finding.over is None else f", over since step {finding.over:,}"
        console.print()
        head = f"{finding.code} {finding.cause}, since step {finding.step:,}{over}"
        console.print(Text.assemble((finding.severity, style), (f"  {head}", "dim")))
        console.print(Text(f"  {finding.summary}"))
        for each in finding.evidence:
            console.print(Text(f"  · {evidence_in_words(each)}", style="dim"))
        console.print(Text.assemble(("  do  ", ACCENT), finding.fix.text))
        for key, value in finding.fix.set.items():
            console.print(Text(f"      --set {key}={value}"))
        for each in finding.ruled_out:
            console.print(Text(f"  not {each}", style="dim"))


def evidence_in_words(evidence: Evidence) -> str:
    value = evidence.value if isinstance(evidence.value, str) else f"{evidence.value:.4g}"
    first, last = evidence.steps or (None, None)
    where = "" if first is None else f", step {first:,}" if first == last else f", steps {first:,} to {last:,}"
    return f"{evidence.signal} {value}{where}" + (f" (healthy: {evidence.usual})" if evidence.usual else "")
