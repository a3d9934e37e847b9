"""safelight doctor"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from safelight.cli.options import RunPath

if TYPE_CHECKING:
    from safelight.diagnosis import Finding


@dataclass(frozen=True, kw_only=True)
class Command:
    """Tell what is wrong with a run and why, from its record alone: while it trains, or after its death."""

    run: RunPath
    """The run folder."""
    json: bool = False
    """Print JSON instead of a letter."""

    def run_command(self) -> None:
        from safelight.diagnosis import diagnose

        found = diagnose(self.run)
        if self.json:
            print(json.dumps({"findings": [finding.to_json() for finding in found]}, indent=1))
        else:
            print_letter(str(self.run), found)


def print_letter(run: str, found: list[Finding]) -> None:
    """As a good physician writes: what, since when, how sure, the evidence, what to do, what was ruled out."""
    from rich.text import Text

    from safelight.cli.metrics import page
    from safelight.diagnosis.rules import RULES
    from safelight.terminal import ACCENT

    console = page()
    console.print(Text(run, style=f"bold {ACCENT}"))
    if not found:
        console.print(f"Nothing was found by {len(RULES)} rules. `safelight explain` lists what they look for.")
    for finding in found:
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


def evidence_in_words(evidence: object) -> str:
    from safelight.diagnosis.finding import Evidence

    assert isinstance(evidence, Evidence)
    value = evidence.value if isinstance(evidence.value, str) else f"{evidence.value:.4g}"
    where = "" if evidence.steps is None else f", steps {evidence.steps[0]:,} to {evidence.steps[1]:,}"
    return f"{evidence.signal} {value}{where}" + (f" (healthy: {evidence.usual})" if evidence.usual else "")
