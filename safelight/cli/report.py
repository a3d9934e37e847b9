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
    out: Annotated[options.Place | None, arg(aliases=["-o"], metavar="FILE", help_behavior_hint="")] = None
    """Where to write it; without it: report.html in the run folder."""

    def run_command(self) -> None:
        from safelight.outputs import check_output, write_output
        from safelight.pages.report.html import REPORT, make_report, write_report
        from safelight.run import open_recorded

        folder = open_recorded(self.run)
        if self.out is None:
            with options.writing(folder.report_page):
                write_report(folder)
        else:
            check_output(self.out, of_run=REPORT)
            write_output(self.out, make_report(folder), of_run=REPORT)
        print(self.out or folder.report_page)
