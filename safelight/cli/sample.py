"""safelight sample"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from safelight.cli import options
from safelight.terminal import Terminal


@dataclass(frozen=True, kw_only=True)
class Command:
    """Draw images from a run, with its EMA weights, in fp32. The same seed gives the same images."""

    run: options.RunPath
    count: Annotated[str, arg(aliases=["-n"], metavar="N")] = "64"
    """How many images."""
    out: Annotated[Path, arg(aliases=["-o"], metavar="PATH")] = Path("samples.png")
    """One PNG with all images, or a folder (a name without .png) with one PNG each."""
    sampler: options.SamplerName = None
    sample_steps: options.SampleSteps = None
    seed: Annotated[str, arg(metavar="N")] = "0"
    """Which images."""
    guidance: options.Guidance = None
    label: options.Number = None
    """Class of conditional models, by number or name, or none; without it, all in turn."""
    step: options.Step = None
    ema: options.EmaWidth = None
    raw: options.Raw = False
    device: options.Device = None

    def run_command(self) -> None:
        from safelight.cli.choices import choose_model, choose_request
        from safelight.generate import columns_for, counting, generate
        from safelight.outputs import check_output, check_output_folder, is_device, write_output
        from safelight.pictures.grid import encode, encode_images, grid, to_uint8

        is_page = self.out.suffix.lower() == ".png" or is_device(self.out)
        place = check_output(self.out) if is_page else check_output_folder(self.out)
        options.make_room(place.parent if is_page else place)  # before the work, not after it
        loaded = choose_model(self, self.run, self.device)
        request = choose_request(self, loaded, self.run, self.count)
        with Terminal().bar("Sampling") as advance:
            images = to_uint8(generate(loaded.model, loaded.config, request, on_step=counting(request, advance)))
        if is_page:
            write_output(self.out, encode(grid(images, columns=columns_for(loaded.config))))
        else:
            for name, content in encode_images(images):
                write_output(place / name, content)
        print(self.out)
