"""safelight evaluate"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from safelight.cli.flags import options
from safelight.errors import UsageError
from safelight.terminal import ACCENT, Terminal, page

if TYPE_CHECKING:
    from safelight.assessment import Assessment, FeatureChoice

GAUSSIAN = "The same of random images with the mean and covariance of the real ones: samples must be well below it."


@dataclass(frozen=True, kw_only=True)
class Command:
    """Measure how good samples are: how far from real images, how varied, and whether any is a copy.

    With a run: samples of it against the images it was trained on. With two sets of images: the first against the
    second. Each number comes with its error, and with what real images would score.
    """

    what: Annotated[tuple[str, ...], Positional, arg(metavar="RUN | IMAGES IMAGES", help_behavior_hint="")] = ()
    """A run folder, or two folders of images (or zips, or known sets)."""
    count: Annotated[str | None, arg(aliases=["-n"], metavar="N", help_behavior_hint="")] = None
    """Samples that are drawn (2,000 by default), or at most so many images of each set."""
    features: options.Word = None
    """lite0 (always there) or inception, whose distance is FID: see `safelight weights`."""
    weights: options.File = None
    """File of weights for it, instead of those that are found."""
    resize: options.Word = None
    """tf1, clean or bilinear; without it, the extractor's own."""
    components: options.Number = None
    """Main axes of the real images that the unbiased distance is taken in, 0: all; without it, 64 for lite0 and all
    for inception."""
    sampler: options.SamplerName = None
    sample_steps: options.SampleSteps = None
    guidance: options.Guidance = None
    seed: Annotated[str, arg(metavar="N")] = "0"
    """Which noise; never the noise that the run's own evaluations used."""
    step: options.Step = None
    ema: options.EmaWidth = None
    raw: options.Raw = False
    device: options.Device = None
    out: Annotated[options.PathArgument | None, arg(aliases=["-o"], metavar="FILE", help_behavior_hint="")] = None
    """Also draw the samples that look most like training images, next to those images (PNG)."""
    json: options.Json = False

    def run_command(self) -> None:
        if len(self.what) not in (1, 2):
            raise UsageError(
                "`safelight evaluate` takes a run, or two sets of images: safelight evaluate runs/first, or safelight "
                "evaluate samples/ photos/"
            )
        found = self._assess_run() if len(self.what) == 1 else self._assess_sets()
        if self.out is not None and found.closest is not None:
            from safelight.outputs import write_output
            from safelight.pictures.grid import encode

            write_output(self.out, encode(found.closest))
        if self.json:
            from safelight.record.fact_encoding import to_json

            quality = found.quality
            facts = {"verdict": quality.sentence, "kind": quality.kind, "over_gaussian": quality.near}
            facts |= found.examination.to_json() | {"extractor": found.extractor.identity()}
            print(to_json({"of": list(self.what)} | facts, indent=1))
        else:
            print_page(" against ".join(self.what), found)

    def _assess_run(self) -> Assessment:
        from safelight.assessment import assess_run
        from safelight.cli.flags.choices import choose_model, choose_request
        from safelight.keys import derive_seed
        from safelight.run import open_run

        path = Path(self.what[0])
        if self.out is not None:
            if self.out.suffix.lower() != ".png":
                raise UsageError(f"-o is {self.out}, but the picture is a PNG: give it a name that ends in .png.")
            from safelight.outputs import check_output

            options.make_room(check_output(self.out).parent)
        loaded = choose_model(self, path, self.device)
        request = choose_request(self, loaded, path, self.count or "2000")
        request = replace(request, seed=derive_seed(request.seed, "evaluate"))
        choice = self._choose_features(str(next(loaded.model.parameters()).device))
        terminal = Terminal()
        with terminal.bar("Sampling") as advance:
            return assess_run(open_run(path), loaded, request, choice, say=terminal.say, advance=advance)

    def _assess_sets(self) -> Assessment:
        from safelight.assessment import assess_sets
        from safelight.training.runtime import choose_device

        for flag in ("sampler", "sample_steps", "guidance", "step", "ema", "raw", "out"):
            if getattr(self, flag):
                raise UsageError(f"--{flag.replace('_', '-')} is for runs; here are two sets of images.")
        generated, real = self.what
        most = options.whole("--count", self.count, at_least=1, at_most=options.MOST_IMAGES)
        terminal, choice = Terminal(), self._choose_features(str(choose_device(self.device or "auto")))
        with terminal.bar("Looking at images") as advance:
            return assess_sets(generated, real, choice, most=most, say=terminal.say, advance=advance)

    def _choose_features(self, device: str) -> FeatureChoice:
        from safelight.assessment import FeatureChoice
        from safelight.config.resolve import convert
        from safelight.config.tree import Features

        features = "lite0" if self.features is None else convert("--features", self.features, Features)
        components = options.whole("--components", self.components, at_least=0, at_most=10**5)
        return FeatureChoice(features, self.weights, self.resize, components, device)


def print_page(title: str, found: Assessment) -> None:
    from safelight.words import lower_first, with_error

    examination = found.examination
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("value", "real images"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("meaning", overflow="fold")
    distance, unbiased, kernel = examination.distance, examination.unbiased, examination.kernel
    floor = "–" if distance.real is None else f"{distance.real:.3g}"
    table.add_row(examination.label, distance.words, floor, distance.sentence)
    words = with_error(max(unbiased.corrected, 0), unbiased.error)
    table.add_row("unbiased", words, "0", f"{examination.unbiased_label}: {lower_first(unbiased.sentence)}")
    if (gaussian := examination.gaussian) is not None:
        table.add_row("Gaussian", with_error(gaussian.unbiased.corrected, gaussian.unbiased.error), "0", GAUSSIAN)
    table.add_row("kernel", with_error(kernel.value, kernel.error), "0", kernel.sentence)
    for figure in examination.figures:
        table.add_row(figure.name, f"{figure.value:.3g}", _span(*figure.baseline), figure.sentence)
    if (copies := examination.copies) is not None:
        copied, sentence = copies.copied, Text(copies.sentence, "bold red" if copies.alarm else "")
        table.add_row("copies", f"{copied.value:.2%}", f"{copied.baseline[0]:.2%}", sentence)
    facts = found.extractor.identity()
    foot = (
        f"{unbiased.count:,} samples, {unbiased.reference_count:,} real images; {facts['extractor']} at "
        f"{facts['side']} px, {facts['resize']} resize, weights {str(facts['weights'])[:12]}"
    )
    heading = Text(title, style=f"bold {ACCENT}")
    page().print(heading, Text(found.quality.sentence, style="bold"), table, Text(foot, style="dim"), sep="\n")


def _span(low: float, high: float) -> str:
    if isnan(low):
        return "–"
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
