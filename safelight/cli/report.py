"""safelight report"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from safelight.cli.flags import options


@dataclass(frozen=True, kw_only=True)
class Command:
    """Put a run into one HTML file: charts, samples and findings, to look at without a server or a network."""

    run: options.RunPath
    out: Annotated[options.PathArgument | None, arg(aliases=["-o"], metavar="FILE", help_behavior_hint="")] = None
    """Where to write it; without it: report.html in the run folder."""

    def run_command(self) -> None:
        from safelight.pages.report.html import write_report
        from safelight.run import open_recorded

        folder = open_recorded(self.run)
        with options.writing(self.out or folder.report_page):
            print(write_report(folder, self.out))
