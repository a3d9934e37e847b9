"""safelight resume"""

from __future__ import annotations

from dataclasses import dataclass

from safelight.cli.options import Flag, Number, RunPath, Settings, Word, dashboard_unless, print_once, settings_from
from safelight.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Command:
    """Carry a run on from its newest checkpoint that verifies: it ends with the bytes it would have had."""

    run: RunPath
    """The run folder."""
    steps: Number = None
    """Train to this step instead (changes the learning-rate plan: needs --force)."""
    device: Word = None
    """auto, cpu, cuda, cuda:1 or mps."""
    accumulate: Number = None
    """Micro-batches per step, or auto."""
    checkpoint_every: Number = None
    """Steps between checkpoints."""
    sample_every: Number = None
    """Steps between pictures."""
    evaluate_every: Number = None
    """Steps between evaluations of samples; 0: none."""
    workers: Number = None
    """Threads that prepare batches ahead."""
    heal: Flag = False
    """Mend what can safely be mended from here on."""
    no_heal: Flag = False
    """Do nothing more to the run; what its journal says goes on."""
    undo: Number = None
    """Number of an act in the journal that is to hold no longer."""
    set: Settings = ()
    """Any setting; the difference is printed."""
    no_dashboard: Flag = False
    """Do not start the dashboard; without a terminal it is not started anyway."""
    force: bool = False
    """Accept changes that alter what the run means."""

    def run_command(self) -> None:
        settings = settings_from(self)
        if self.heal and self.no_heal:
            raise UsageError("--heal and --no-heal exclude each other. Use one of them.")
        if self.no_heal:
            settings = {"heal.enabled": False} | settings
        from safelight.config.resolve import convert

        undo = None if self.undo is None else convert("--undo", self.undo, int)
        from safelight.run import open_run

        open_run(self.run)
        from safelight.start import resume

        on_start = dashboard_unless(self.no_dashboard)
        print_once(resume(self.run, settings=settings, force=self.force, undo=undo, on_start=on_start).path)
