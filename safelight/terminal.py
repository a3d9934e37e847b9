"""What the terminal shows during a run: first screen, live block, plain lines, last screen. On stderr."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from safelight import __version__
from safelight.printing import open_console
from safelight.words import one_line, with_error

if TYPE_CHECKING:
    from safelight.diagnosis import Diagnosis
    from safelight.run import RunFolder
    from safelight.training.build import Setup
    from safelight.training.step_reporter import StepSummary

REFRESHES_PER_SECOND = 4
PLAIN_SECONDS = 10.0
ACCENT = "dark_orange"
WIDE_COLUMNS = 160  # columns with room for everything


class Terminal:
    """Draws on a timer, never per step; plain lines where there is no terminal. NO_COLOR is honoured by rich."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self.console = console or open_console(stderr=True, quiet=quiet)
        self._latest: StepSummary | None = None
        self._live, self._doing = False, ""
        self._printed = time.monotonic()

    def say(self, text: str) -> None:
        self._print(Text(one_line(text)))

    def _print(self, text: Text, *, soft_wrap: bool | None = None) -> None:
        """A log on a disk that is full costs its lines, never the run."""
        with suppress(OSError):
            self.console.print(text, soft_wrap=soft_wrap)

    def doing(self, what: str) -> None:
        self._doing = what

    def show(self, progress: StepSummary) -> None:
        self._latest = progress
        ended = progress.step == progress.steps
        if not self._live and (ended or time.monotonic() - self._printed >= PLAIN_SECONDS):
            self._printed = time.monotonic()
            line = (
                f"step {progress.step}/{progress.steps}  loss {progress.loss:.4g}{_skill(progress, 2)}  "
                f"lr {progress.lr:.2e}  gradient {progress.norm:.3f}  {progress.images_per_second:,.0f} images/s  "
                f"left {duration(progress.seconds_left)}{_refused(progress)}"
            )
            self._print(Text(line), soft_wrap=True)

    @contextmanager
    def live(self) -> Iterator[None]:
        """The live block, refreshed by its own thread."""
        if not self.console.is_terminal:
            yield
            return
        with Live(
            get_renderable=self._block,
            console=self.console,
            refresh_per_second=REFRESHES_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            self._live = True
            try:
                yield
            finally:
                self._live = False

    def _block(self) -> Group | Text:
        progress = self._latest
        if progress is None:
            return Text(f"{self._doing or 'drawing the first samples, then the first step'} …", style="dim")
        width = min(60, max(20, self.console.width - 50))
        filled = round(width * progress.step / progress.steps)
        head = Text.assemble(
            ("━" * filled, ACCENT),
            ("━" * (width - filled), "grey37"),
            f"  {progress.step / progress.steps:4.0%}  step {progress.step:,} of {progress.steps:,}  ",
            (f"{duration(progress.seconds_left)} left", "bold"),
            (f"  {self._doing} …" if self._doing else "", ACCENT),
        )
        body = (
            f"loss {progress.loss:.4g}{_skill(progress, 3)}   gradient {progress.norm:.3f}   "
            f"lr {progress.lr:.2e}   {progress.images_per_second:,.0f} images/s{_refused(progress)}"
        )
        return Group(head, Text(body, style="dim"))

    @contextmanager
    def bar(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """A progress bar for something that may take a while; gone when done."""
        name, line = TextColumn("{task.description}"), BarColumn(complete_style=ACCENT)
        columns = (name, line, MofNCompleteColumn(), TimeRemainingColumn())
        with Bar(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    def first_screen(self, parts: Setup, folder: RunFolder, seconds: float, pictures: float = 0.0) -> None:
        """`seconds` of a step; `pictures`: what those that are still to come cost at most, in steps."""
        config, step = parts.config, parts.state.counters.step
        epochs = parts.batches.epoch(config.train.steps)
        left = duration((config.train.steps - step) * seconds) if math.isfinite(seconds) else "(not known yet)"
        drawing = pictures * seconds
        beside = f", and up to {duration(drawing)} of pictures" if pictures and math.isfinite(drawing) else ""

        self._table(
            f"safelight {__version__}",
            ("device", f"{parts.runtime.describe()}, {_precision_in_words(parts)}{_processes_in_words(parts)}"),
            ("data", f"{config.data.source}: {_images_in_words(parts)}"),
            ("model", _model_in_words(parts)),
            ("batch", _batch_in_words(parts)),
            ("steps", f"{step:,} to {config.train.steps:,} ({_epochs_in_words(epochs)} in all)"),
            ("time left", f"about {left}{beside}"),
            ("run", str(folder.path)),
            ("resume", f"safelight resume {folder.path}"),
        )

    def last_screen(self, parts: Setup, folder: RunFolder, seconds: float, diagnosis: Diagnosis | None) -> None:
        counters, pictures = parts.state.counters, folder.pictures()
        by = (
            _evaluation_in_words(folder)
            if counters.best_evaluated
            else f"loss on the fixed set {counters.best_loss:.4g}"
        )
        loss = math.nan if self._latest is None else self._latest.loss
        best = f"best at step {counters.best_step:,} ({by})" if counters.best_step is not None else "nothing saved"
        self._table(
            f"done in {duration(seconds)}",
            ("result", f"step {counters.step:,}, loss {loss:.4g}, {best}"),
            ("samples", str(pictures[-1][1]) if pictures else "none were drawn"),
            ("timelapse", str(folder.samples / "timelapse.gif")),
            ("model", str(folder.checkpoints / f"step_{counters.step:08d}")),
            *([("report", str(folder.report_page))] if folder.report_page.is_file() else []),
            *_verdict_rows(diagnosis, folder, counters.refused),
            *(("record", str(words)) for words in folder.status().get("restorations") or ()),
            *_next_commands(folder),
        )

    def _table(self, title: str, *rows: tuple[str, str]) -> None:
        self._print(Text(title, style=f"bold {ACCENT}"))
        for name, value in rows:
            self._print(Text.assemble((f"  {name:<11}", "dim"), one_line(value)), soft_wrap=True)


def _verdict_rows(diagnosis: Diagnosis | None, folder: RunFolder, refused: int) -> list[tuple[str, str]]:
    """The verdict, what is open now, and where to read more."""
    if diagnosis is None:
        return [("verdict", "The diagnosis failed: nothing is known.")]
    present = [each for each in diagnosis.findings if each.severity != "info" and each.over is None]
    lines = [f"{each.severity} {each.code} {each.cause}, since step {each.step:,}" for each in present]
    lines += [f"{refused} updates refused because they were not finite"] if refused else []
    lines += [f"safelight doctor {folder.path}"] if diagnosis.findings else []
    rows = [("" if place else "findings", words) for place, words in enumerate(lines)]
    gains = diagnosis.progress
    progress = [] if gains is None or not gains.bands else [("progress", gains.words())]
    looks = [] if diagnosis.samples is None else [("quality", diagnosis.samples)]
    return [("verdict", diagnosis.verdict), *progress, *looks, *rows]


def _evaluation_in_words(folder: RunFolder) -> str:
    """The distance of the best checkpoint, as every page shows it."""
    found = folder.status().get("evaluation")
    if found is None:
        return "by evaluation"
    return f"{found['label']} {with_error(max(found['distance'], 0.0), found['error'])} on fresh noise"


def _next_commands(folder: RunFolder) -> list[tuple[str, str]]:
    if folder.architecture() is None:  # a model of the user's own: only its owner can call it
        return [("next", f'safelight.open("{folder.path}").sample(model=your_model)')]
    sample = f"safelight sample {folder.path} -n 64 -o samples.png"
    return [("next", sample), ("", f"safelight export {folder.path} -o pipeline")]


def _images_in_words(parts: Setup) -> str:
    images, data = parts.images, parts.config.data
    classes = f", {len(images.class_names)} classes" if images.class_names else ""
    held = f", {len(images) - parts.batches.count:,} held out" if parts.held_out_set is not None else ""
    colour = "grey" if data.channels == 1 else "colour"
    return f"{len(images):,} images, {data.image_size} px, {colour}{classes}{held}"


def _model_in_words(parts: Setup) -> str:
    model, diffusion = parts.state.model, parts.config.diffusion
    parameters = sum(p.numel() for p in model.parameters()) / 1e6
    kind = type(model).__name__.removeprefix("FSDP")
    name = {"UNet2DModel": "U-Net"}.get(kind, kind)
    process = f"{diffusion.schedule} schedule" if diffusion.process == "vp" else f"{diffusion.process} process"
    return f"{name}, {parameters:.2f} M parameters, {diffusion.prediction}, {process}"


def _batch_in_words(parts: Setup) -> str:
    size, micro = parts.config.train.batch_size, len(parts.loader.spans())
    each = " for each process" * (parts.runtime.group.size > 1)
    part = size // micro // parts.runtime.group.size
    return f"{size}" if micro == 1 else f"{size} as {micro} micro-batches of {part}{each}"


def _processes_in_words(parts: Setup) -> str:
    count = parts.runtime.group.size
    sharded = ", weights sharded" * (parts.state.weights.shard is not None)
    return f", {count} processes{sharded}" if count > 1 else ""


def duration(seconds: float) -> str:
    """1:02:03 or 2:03, and a dash where it is not known."""
    if not math.isfinite(seconds):
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _precision_in_words(parts: Setup) -> str:
    precision = parts.config.train.precision
    is_slow = precision != "fp32" and parts.runtime.device.type == "cpu"
    if precision == "bf16" and parts.runtime.has_native_bf16:
        return precision
    return f"{precision} (made for GPUs: on most CPUs slower than fp32, fp16 many times)" if is_slow else precision


def _epochs_in_words(epochs: float) -> str:
    number = f"{epochs:,.0f}" if epochs >= 10 else f"{epochs:.2g}"
    return f"{number} epoch{'s' * (number != '1')}"


def _skill(progress: StepSummary, apart: int) -> str:
    return "" if progress.skill is None else f"{' ' * apart}skill {progress.skill:.2f}"


def _refused(progress: StepSummary) -> str:
    return f"   {progress.refused} refused" if progress.refused else ""


def page() -> Console:
    """As wide as the terminal, and wide enough for everything where there is none."""
    shown = sys.stdout is not None and sys.stdout.isatty()
    return open_console(width=None if shown or "COLUMNS" in os.environ else WIDE_COLUMNS)
