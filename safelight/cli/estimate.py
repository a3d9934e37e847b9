"""safelight estimate"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

from safelight.cli.flags import options
from safelight.errors import DataError
from safelight.terminal import Terminal


@dataclass(frozen=True, kw_only=True)
class Command:
    """Report what a run would need before it starts: memory by a traced step, time by a timed one, and disk."""

    data: options.Source = None
    """digits, shapes, fashion-mnist, a folder of images, a zip of one, or an idx file."""
    preset: options.Preset = None
    config: options.ConfigFile = None
    set: options.Settings = ()
    """Any setting, over everything else."""
    batch_size: options.BatchSize = None
    image_size: options.ImageSize = None
    precision: options.Precision = None
    accumulate: options.Number = None
    """Micro-batches per step."""
    device: options.Device = None
    steps: options.Steps = None
    no_time: bool = False
    """Do not time a real step: nothing is allocated then."""
    json: options.Json = False

    def run_command(self) -> None:
        config = options.config_from(self)
        from safelight.config.check import check
        from safelight.data.sources import is_known, not_found

        check(config)
        if not is_known(config.data.source) and not os.path.exists(os.path.expanduser(config.data.source)):
            raise DataError(not_found(config.data.source))
        from safelight.requirements import estimate

        with Terminal().bar("Tracing a step"):
            found = estimate(config, timed=not self.no_time)
        print(json.dumps(asdict(found), indent=1) if self.json else found.in_words())
