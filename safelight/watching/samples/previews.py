"""What is drawn of a watched loop: pictures from the same noise every time, and pictures of its own."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from safelight.errors import SafelightError
from safelight.monitors.parameters import trainable_parameters, unwrapped
from safelight.observing.stage_pictures import STAGES, compare_weights, draw_timelapse, save_stage
from safelight.pictures.grid import grid, save_png, to_uint8
from safelight.probes.dataset import take_images
from safelight.run import picture_path
from safelight.watching.arguments import WatchArguments
from safelight.watching.foreign import ema_of_trained, is_function
from safelight.watching.samples.newest_readings import NewestReadings
from safelight.watching.samples.preview_plan import PreviewSchedule
from safelight.watching.samples.sample_grid import SampleGrid
from safelight.watching.samples.sample_measures import COUNT, SampleMeasures
from safelight.watching.samples.sampled_images import as_batch
from safelight.watching.watched_run import WatchedRun
from safelight.words import first_line, printable

MAX_TIME_SHARE = 0.02  # of the time, that pictures may take where nobody says how often they are drawn
MIN_PICTURE_SECONDS = 0.02  # seconds that a picture takes at least
LAST_PICTURE_SECONDS = 0.5  # that the last one may take in any case
# Stage of a loop whose length is not known, and how many times later the next one is
FIRST_STAGE, STAGE_GROWTH = 16, 1.25
FAILURES = 3  # after which no more pictures are tried
BATCH = 64
LONGEST_SLUG = 150  # bytes


class Previews:
    """A copy of the model draws; nothing of the loop is touched. What fails is reported and costs the loop nothing."""

    def __init__(
        self,
        given: WatchArguments,
        run: WatchedRun,
        say: Callable[[str], None],
        report_once: Callable[[str], None],
        step: int,
    ) -> None:
        self._given, self._ema, self._every = given, given.ema, given.previews.sample_every
        self._folder, self._record, self._report_once = run.folder, run.record, report_once
        self._is_on = given.sampler is not None and self._every != 0
        self._plan = PreviewSchedule(step, run.steps, self._every, STAGES, FIRST_STAGE, STAGE_GROWTH)
        device = next(given.model.parameters()).device
        self._measures = SampleMeasures(given.data, given.previews, run, step, device, report_once, say)
        self.newest = NewestReadings()
        self._grid: SampleGrid | None = None
        self._shape: tuple[int, ...] | None = None
        self._began, self._spent = time.perf_counter(), 0.0
        self._cost, self._pictures = 0.0, 0.0  # seconds of the last picture, of all
        self._failures = 0
        self._drawn_at, self._has_drawn = step, False

    @property
    def best_step(self) -> int | None:
        """Updates after which the samples were the best."""
        return self._measures.best_step

    def see(self, x0: Tensor | None, x_t: Tensor | None) -> None:
        """What the loop trains on, and its shape."""
        if not self._is_on:
            return
        shown = x0 if x0 is not None else x_t
        if self._shape is None and shown is not None:
            self._shape = tuple(shown.shape[1:])
        if x0 is not None:
            self._measures.see(x0)

    def after_update(self, updates: int) -> float:
        """Draws and evaluates what is due. Returns the seconds that it took."""
        if not self._is_on or updates == self._drawn_at:
            return 0.0
        spent, asked = self._spent, self._measures.is_due(updates)
        is_due = self._plan.is_due(updates)
        if is_due and self._every is None and not asked:
            is_due = self._seconds_left > max(MIN_PICTURE_SECONDS, self._cost)
        if is_due or asked:
            self._plan.passed(updates)
            self._draw(updates, ended=False, seconds=self._seconds_left)
        return self._spent - spent

    def finish(self, updates: int) -> None:
        """The last stage, and all of them as an animation."""
        if not self._is_on:
            return
        may_take = max(LAST_PICTURE_SECONDS, self._seconds_left)
        if updates > self._drawn_at and (self._every is not None or self._cost <= may_take):
            self._draw(updates, ended=True, seconds=may_take)
        place = self._folder.samples, self._folder.disk
        if self._grid is not None and (path := self._attempt("The timelapse", draw_timelapse, *place)) is not None:
            self._record.picture(updates, "timelapse", path)

    def image(self, name: str, images: Any, step: int) -> None:
        """Images of the loop's own, as they are now."""
        failures = self._failures
        self._attempt("The picture", self._save_image, name, images, step)
        self._failures = failures  # of samples none failed

    @property
    def _trained(self) -> float:
        """Seconds."""
        return time.perf_counter() - self._began - self._spent

    @property
    def _seconds_left(self) -> float:
        return MAX_TIME_SHARE * self._trained - self._pictures

    # --- a stage --------------------------------------------------------------------------------------------------

    def _draw(self, updates: int, *, ended: bool, seconds: float) -> None:
        begun, trained_for = time.perf_counter(), self._trained
        self._attempt("The picture", self._draw_stage, updates, ended, seconds, trained_for)
        self._is_on = self._failures < FAILURES
        self._spent += time.perf_counter() - begun

    def _draw_stage(self, updates: int, ended: bool, seconds: float, trained_for: float) -> None:
        begun, grid, measures = time.perf_counter(), self._open_grid(), self._measures
        evaluating = measures.may_evaluate(
            updates, ended=ended, trained=trained_for, image_seconds=self._cost / grid.count
        )
        count = max(grid.count, measures.samples) if evaluating else grid.count
        # An evaluation has a budget of its own, and who says how often gets it.
        limit = math.inf if evaluating or self._every is not None else seconds
        try:
            stage = grid.draw(self._given.model, ema=self._matched_ema(), count=count, seconds=limit)
        except TimeoutError:
            self._cost = 2 * (time.perf_counter() - begun)  # or more: nobody knows how long the sampler is
            self._pictures += self._cost / 2
            return
        shown, disk = stage.samples[: grid.count], self._folder.disk
        found = save_stage(self._folder.samples, updates, shown, disk, raw=stage.raw, denoising=stage.denoising)
        for kind, path in found.items():
            self._record.picture(updates, kind, path)
        self._cost, self._drawn_at = (time.perf_counter() - begun) * grid.count / count, updates
        self._has_drawn = True
        self._pictures += self._cost
        self._record.add(updates, compare_weights(stage.samples, stage.raw, self._ema_distance()))
        measures.look(
            shown, updates, ended=ended, evaluating=evaluating, trained=trained_for
        )  # fmt: skip
        if evaluating:
            measures.evaluate(stage.samples, updates, begun=begun + self._cost, trained=trained_for)

    def _open_grid(self) -> SampleGrid:
        if self._grid is None:
            assert self._given.sampler is not None
            self._grid = SampleGrid(
                self._folder.samples, self._given.sampler, COUNT, shape=self._image_shape(), batch_size=BATCH
            )
        return self._grid

    def _image_shape(self) -> tuple[int, int, int] | None:
        """As the loop showed it, or as its data has it; None where only the model may know."""
        if self._shape is None and self._given.data is not None:
            taken = take_images(self._given.data, 1)
            self._shape = None if taken is None else tuple(taken.shape[1:])
        if self._shape is None or len(self._shape) != 3:
            return None
        channels, height, width = self._shape
        return channels, height, width

    def _matched_ema(self) -> Any:
        """As it is now; None while a function knows none yet, or where it is that of something else."""
        ema = self._ema() if is_function(self._ema) else self._ema
        if ema is None or self._averages() is not None:
            return ema
        self._report_once("The EMA could not be matched with the model: samples are those of the raw weights.")
        return None

    def _averages(self) -> list[Tensor] | None:
        model = unwrapped(self._given.model)
        return ema_of_trained(self._ema, list(model.named_parameters()), trainable_parameters(model))

    @torch.no_grad()
    def _ema_distance(self) -> float:
        """The distance of EMA and raw weights, over the length of the raw ones."""
        averages = None if self._ema is None else self._averages()
        named_parameters = trainable_parameters(unwrapped(self._given.model))
        apart = length = 0.0
        for (_, own), average in zip(named_parameters, averages or [own for _, own in named_parameters], strict=True):
            apart += float((average.to(own).float() - own.float()).square().sum())
            length += float(own.float().square().sum())
        return (apart / max(length, 1e-24)) ** 0.5

    # --- pictures of the loop's own -------------------------------------------------------------------------------

    def _save_image(self, name: Any, images: Any, step: int) -> None:
        name = printable(str(name))
        slug = (
            "".join(letter if letter.isalnum() else "_" for letter in name)[:60]
            .encode()[:LONGEST_SLUG]
            .decode(errors="ignore")
            or "image"
        )
        path = picture_path(self._folder.samples, step, f"own_{slug}")
        save_png(grid(to_uint8(as_batch(images))), path, self._folder.disk)
        self._record.picture(step, name[:100], path)

    # --- what may fail --------------------------------------------------------------------------------------------

    def _attempt(self, what: str, act: Callable[..., Any], *given: Any) -> Any:
        """What `act` returns; None if it failed."""
        try:
            return act(*given)
        except Exception as error:
            self._failures += 1
            kind = "" if isinstance(error, SafelightError) else f"{type(error).__name__}: "
            reason = kind + first_line(error, 300)
            self._record.event(self._drawn_at, "no_picture", what=what, reason=reason)
            # A sampler that was passed for the sake of the checks may not call the model with all that it takes.
            if self._every is None and self._grid is not None and not self._has_drawn and isinstance(error, TypeError):
                self._failures = FAILURES
            else:
                self._report_once(f"{what} could not be made ({reason}); your training continues.")
            return None
