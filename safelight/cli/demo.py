"""safelight demo"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from safelight.cli import export, sample, train
from safelight.cli.flags import options
from safelight.words import printable

SAMPLES = 80  # eight of each digit


@dataclass(frozen=True, kw_only=True)
class Command:
    """Train on handwritten digits, draw samples and export a model: about five minutes on two CPU cores.

    It is `safelight train`, `safelight sample` and `safelight export` with their defaults. Nothing is downloaded.
    """

    run: options.PathArgument = Path("runs/demo")
    """Run folder; must be new or empty."""
    steps: options.Steps = None
    no_dashboard: options.NoDashboard = False
    force: options.Flag = False
    """Where --run is not empty: move what is there aside, as DIR-before-1. Nothing is deleted."""

    def run_command(self) -> None:
        pictures, pipeline = self.run / "samples" / "final.png", self.run / "pipeline"
        train.Command(run=self.run, steps=self.steps, no_dashboard=self.no_dashboard, force=self.force).run_command()
        sample.Command(run=self.run, count=str(SAMPLES), out=pictures).run_command()
        export.Command(run=self.run, out=pipeline).run_command()
        for line in (
            f"samples    {pictures}",
            f"timelapse  {self.run / 'samples' / 'timelapse.gif'}",
            f"model      {pipeline}: diffusers.DDIMPipeline.from_pretrained loads it",
            f"next       safelight dashboard {self.run}",
        ):
            print(printable(line), file=sys.stderr)
