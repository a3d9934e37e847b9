"""safelight sample"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from safelight.cli.options import Number, RunPath, Word

if TYPE_CHECKING:
    from safelight.generate import Request
    from safelight.opened import LoadedModel


@dataclass(frozen=True, kw_only=True)
class Command:
    """Draw images from a run, with its averaged weights, in fp32. The same seed gives the same images."""

    run: RunPath
    """The run folder."""
    count: Annotated[str, arg(aliases=["-n"], metavar="N")] = "64"
    """How many images."""
    out: Annotated[Path, arg(aliases=["-o"], metavar="PATH")] = Path("samples.png")
    """One PNG with all images, or a folder (a name without .png) with one PNG each."""
    sampler: Word = None
    """ddim, ddpm or dpm-solver++; without it, as the run drew its pictures."""
    sample_steps: Number = None
    """Denoising steps per image."""
    seed: Annotated[str, arg(metavar="N")] = "0"
    """Which images."""
    guidance: Number = None
    """Classifier-free guidance of conditional models; 1: none."""
    label: Number = None
    """Class of conditional models, by number or name, or none; without it, all in turn."""
    step: Number = None
    """Checkpoint to use, or best; without it, the newest."""
    ema: Annotated[str | None, arg(metavar="WIDTH", help_behavior_hint="")] = None
    """Relative width of another average, rebuilt from the run's snapshots: 0.05, 0.15, …"""
    raw: bool = False
    """Use the raw weights instead of the averaged ones."""
    device: Word = None
    """auto, cpu, cuda, cuda:1 or mps."""

    def run_command(self) -> None:
        from safelight.cli.choices import choose_model, choose_request, make_room

        make_room(self.out.parent if self._is_page() else self.out)  # before the work, not after it
        loaded = choose_model(self.run, step=self.step, ema=self.ema, raw=self.raw, device=self.device)
        request = choose_request(self, loaded)
        self._draw(loaded, request)
        print(self.out)

    def _is_page(self) -> bool:
        return self.out.suffix.lower() == ".png"

    def _draw(self, loaded: LoadedModel, request: Request) -> None:
        from safelight.cli.choices import writing
        from safelight.generate import columns_for, counting, generate
        from safelight.pictures.grid import grid, save_images, save_png, to_uint8
        from safelight.terminal import Terminal

        with Terminal().bar("Sampling") as advance:
            images = to_uint8(generate(loaded.model, loaded.config, request, on_step=counting(request, advance)))
        with writing(self.out):
            if self._is_page():
                save_png(grid(images, columns=columns_for(loaded.config)), self.out)
            else:
                save_images(images, self.out)
