"""safelight sample"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from safelight.cli.flags import options
from safelight.errors import UsageError
from safelight.terminal import Terminal

if TYPE_CHECKING:
    from safelight.generate import Request
    from safelight.opened import LoadedModel


@dataclass(frozen=True, kw_only=True)
class Command:
    """Draw images from a run, with its EMA weights, in fp32. The same seed gives the same images."""

    run: options.RunPath
    count: Annotated[str, arg(aliases=["-n"], metavar="N")] = "64"
    """How many images."""
    out: Annotated[options.PathArgument, arg(aliases=["-o"], metavar="PATH")] = Path("samples.png")
    """One PNG with all images, or a folder (a name without .png) with one PNG each."""
    sampler: options.SamplerName = None
    sample_steps: options.SampleSteps = None
    seed: Annotated[str, arg(metavar="N")] = "0"
    """Which images."""
    guidance: options.Guidance = None
    label: options.Number = None
    """Class of conditional models, by number or name, or none; without it, all in turn."""
    eta: options.Number = None
    """For the sampler ddim: the share of ddpm's noise that is added at every step, from 0 (none) to 1."""
    temperature: options.Number = None
    """Deviation of the noise that images begin as; below 1 they vary less."""
    variance: options.Word = None
    """For the sampler ddpm: small or large (beta)."""
    denoising: Annotated[str | None, arg(metavar="T,T,…|auto", help_behavior_hint="")] = None
    """Draw the way out of the noise instead of a grid: at these timesteps, or at evenly spread ones."""
    timelapse: Annotated[str | None, arg(metavar="STEP,STEP,…|all", help_behavior_hint="")] = None
    """Draw nothing: make a GIF (-o FILE.gif) of the pictures that the run has of these steps."""
    fps: options.Number = None
    """For the GIF: pictures per second."""
    step: options.Step = None
    ema: options.EmaWidth = None
    raw: options.Raw = False
    device: options.Device = None

    def run_command(self) -> None:
        from safelight.cli.flags.choices import choose_model, choose_request
        from safelight.generate import columns_for, counting, generate
        from safelight.outputs import check_output, check_output_folder, is_device, write_output
        from safelight.pictures.grid import encode, encode_images, grid, to_uint8

        if self.timelapse is not None:
            self._make_timelapse(self.timelapse)
            return
        is_page = self.out.suffix.lower() == ".png" or is_device(self.out) or self.denoising is not None
        place = check_output(self.out) if is_page else check_output_folder(self.out)
        options.make_room(place.parent if is_page else place)  # before the work, not after it
        loaded = choose_model(self, self.run, self.device)
        request = choose_request(self, loaded, self.run, self.count)
        if self.denoising is not None:
            self._draw_strip(self.denoising, loaded, request)
            return
        with Terminal().bar("Sampling") as advance:
            images = to_uint8(generate(loaded.model, loaded.config, request, on_step=counting(request, advance)))
        if is_page:
            write_output(self.out, encode(grid(images, columns=columns_for(loaded.config))))
        else:
            for name, content in encode_images(images):
                write_output(place / name, content)
        print(self.out)

    def _draw_strip(self, timesteps: str, loaded: LoadedModel, request: Request) -> None:
        import torch

        from safelight.config.resolve import convert
        from safelight.diffusion.sampling import make_solver
        from safelight.generate import generate
        from safelight.observing.stage_pictures import STRIP_IMAGES, Columns, spread_over
        from safelight.outputs import write_output
        from safelight.pictures.grid import encode, strip

        request = replace(request, count=min(request.count, STRIP_IMAGES))
        solver = make_solver(request.sampler, loaded.config.diffusion)
        solver.begin(request.steps, torch.device("cpu"))
        times = [float(t) for t in solver.times()]
        wanted = spread_over(request.steps)
        if timesteps != "auto":
            asked = [convert("--denoising", word, float) for word in timesteps.split(",")]
            wanted = {min(range(len(times)), key=lambda place: abs(times[place] - t)) for t in asked}
        columns = Columns(request.count, wanted)
        images = generate(loaded.model, loaded.config, request, on_step=columns.add)
        frames, captions = columns.finish(images)
        write_output(self.out, encode(strip(frames, captions=captions)))
        print(self.out)

    def _make_timelapse(self, stages: str) -> None:
        from safelight.config.resolve import convert
        from safelight.observing.stage_pictures import draw_timelapse
        from safelight.outputs import check_output, write_output
        from safelight.run import open_recorded

        folder, out = open_recorded(self.run), self.out
        out = Path("timelapse.gif") if out == Path("samples.png") else out
        if out.suffix.lower() != ".gif":
            raise UsageError(f"A timelapse is a GIF: -o {out.with_suffix('.gif')}")
        check_output(out)
        steps = None if stages == "all" else [options.number("--timelapse", each) for each in stages.split(",")]
        fps = None if self.fps is None else convert("--fps", self.fps, float)
        with TemporaryDirectory() as place:
            made = draw_timelapse(folder.samples, folder.disk, steps=steps, fps=fps, out=Path(place) / "made.gif")
            if made is None:
                raise UsageError(f"{folder.path} has fewer than two pictures of its samples: nothing to animate.")
            write_output(out, made.read_bytes())
        print(out)
