"""safelight export"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from safelight.cli.options import Number, RunPath


@dataclass(frozen=True, kw_only=True)
class Command:
    """Write a pipeline that diffusers loads: DDIMPipeline.from_pretrained(DIR), DDPMPipeline likewise."""

    run: RunPath
    """The run folder."""
    out: Annotated[Path, arg(aliases=["-o"], metavar="DIR")] = Path("pipeline")
    """Where to write it."""
    step: Number = None
    """Checkpoint to use, or best; without it, the newest."""
    ema: Annotated[str | None, arg(metavar="WIDTH", help_behavior_hint="")] = None
    """Relative width of another average, rebuilt from the run's snapshots."""
    raw: bool = False
    """Use the raw weights instead of the averaged ones."""
    label: Number = None
    """Conditional models: the class that the pipeline draws; without it, no class in particular."""

    def run_command(self) -> None:
        from safelight.cli.choices import choose_label, choose_model
        from safelight.export import export_pipeline

        loaded = choose_model(self.run, step=self.step, ema=self.ema, raw=self.raw, device="cpu")
        label = None if self.label is None else choose_label(self.run, self.label, loaded)
        export_pipeline(loaded.model, loaded.config, self.out, label)
        print(self.out)
