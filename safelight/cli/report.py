"""safelight report"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from safelight.cli import options
from safelight.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Command:
    """Put a run into one HTML file: charts, samples and findings, to look at without a server or a network."""

    run: options.RunPath
    out: Annotated[Path | None, arg(aliases=["-o"], metavar="FILE", help_behavior_hint="")] = None
    """Where to write it; without it: report.html in the run folder."""

    def run_command(self) -> None:
        from safelight.pages.report.html import write_report
        from safelight.run import open_recorded

        folder = open_recorded(self.run)
        out = self.out or folder.report_page
        if out.is_dir():
            raise UsageError(f"{out} is a folder. Name a file: -o {out / 'report.html'}")
        with options.writing(out):
            write_report(folder, out)
        print(out)
