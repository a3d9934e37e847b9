"""safelight export"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from safelight.cli.flags import options


@dataclass(frozen=True, kw_only=True)
class Command:
    """Write a pipeline that diffusers loads: DDIMPipeline.from_pretrained(DIR), DDPMPipeline likewise."""

    run: options.RunPath
    out: Annotated[options.PathArgument, arg(aliases=["-o"], metavar="DIR")] = Path("pipeline")
    """Where to write it."""
    step: options.Step = None
    ema: options.EmaWidth = None
    raw: options.Raw = False
    label: options.Number = None
    """Conditional models: the class that the pipeline draws; without it, no class in particular."""

    def run_command(self) -> None:
        from safelight.cli.flags.choices import choose_model
        from safelight.export import export_pipeline
        from safelight.opened import find_label

        loaded = choose_model(self, self.run, "cpu")
        label = None if self.label is None else find_label(self.run, self.label, loaded.config)
        export_pipeline(loaded.model, loaded.config, self.out, label)
        print(self.out)
