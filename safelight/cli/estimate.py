"""safelight estimate"""

from __future__ import annotations

import json
from dataclasses import dataclass

from safelight.cli.options import File, Number, Settings, Source, Word, config_from


@dataclass(frozen=True, kw_only=True)
class Command:
    """Tell what a run would need before it starts: memory by a traced step, time by a timed one, and disk."""

    data: Source = None
    """digits, shapes, fashion-mnist, a folder of images, a zip of one, or an idx file."""
    preset: Word = None
    """digits, tiny, small or base."""
    config: File = None
    """YAML file of settings, over the preset."""
    set: Settings = ()
    """Any setting, over everything else."""
    batch_size: Number = None
    """Images per optimizer step."""
    image_size: Number = None
    """Side of the square the model sees, in pixels."""
    precision: Word = None
    """fp32, bf16 or fp16."""
    accumulate: Number = None
    """Micro-batches per step."""
    device: Word = None
    """auto, cpu, cuda, cuda:1 or mps."""
    steps: Number = None
    """Optimizer steps of the whole run."""
    no_time: bool = False
    """Do not time a real step: nothing is allocated then."""
    json: bool = False
    """Print JSON instead of a page."""

    def run_command(self) -> None:
        config = config_from(self)
        import os

        from safelight.config.check import check
        from safelight.data.sources import is_known, not_found
        from safelight.errors import DataError

        check(config)
        if not is_known(config.data.source) and not os.path.exists(os.path.expanduser(config.data.source)):
            raise DataError(not_found(config.data.source))
        from safelight.estimate import estimate
        from safelight.terminal import Terminal

        with Terminal().bar("Tracing a step"):
            found = estimate(config, timed=not self.no_time)
        print(json.dumps(found.as_dict(), indent=1) if self.json else found.in_words())
