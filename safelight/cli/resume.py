"""safelight resume"""

from __future__ import annotations

from dataclasses import dataclass

from safelight.cli.flags import options
from safelight.errors import UsageError
from safelight.run import open_run


@dataclass(frozen=True, kw_only=True)
class Command:
    """Continue a run from its newest valid checkpoint: it ends with the bytes it would have had."""

    run: options.RunPath
    steps: options.Number = None
    """Train to this step instead (changes the learning-rate plan: needs --force)."""
    epochs: options.Number = None
    """Train to so many epochs instead (needs --force too)."""
    device: options.Device = None
    accumulate: options.Accumulate = None
    checkpoint_every: options.CheckpointEvery = None
    sample_every: options.SampleEvery = None
    evaluate_every: options.EvaluateEvery = None
    workers: options.Workers = None
    heal: options.Flag = False
    """Fix what can safely be fixed from here on."""
    no_heal: options.Flag = False
    """Do nothing more to the run; what its journal says goes on."""
    undo: options.Number = None
    """Number of an act in the journal that is to hold no longer."""
    set: options.Settings = ()
    """Any setting; the difference is printed."""
    notify: options.Notify = None
    no_dashboard: options.NoDashboard = False
    force: bool = False
    """Accept changes that alter what the run means."""

    def run_command(self) -> None:
        settings = options.settings_from(self)
        if self.heal and self.no_heal:
            raise UsageError("--heal and --no-heal exclude each other. Use one of them.")
        if self.no_heal:
            settings = {"heal.enabled": False} | settings
        undo = options.whole("--undo", self.undo)
        open_run(self.run)
        from safelight.start import resume

        on_start = options.starting(self.no_dashboard, self.notify)
        options.print_once(resume(self.run, settings=settings, force=self.force, undo=undo, on_start=on_start).path)
