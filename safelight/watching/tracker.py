"""Safelight as a tracker of accelerate: `Accelerator(log_with=Tracker())`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.tracking import GeneralTracker, on_main_process
from PIL import Image
from torch import Tensor

from safelight.observing.live_diagnosis import OnFinding
from safelight.pictures.grid import save_png
from safelight.watching.arguments import PreviewIntervals, WatchArguments
from safelight.watching.loop import Watch
from safelight.watching.opening import open_watch
from safelight.watching.silent_watch import NullWatch
from safelight.watching.watched_run import WatchedRun
from safelight.words import print_to_stderr


class Tracker(GeneralTracker):
    """What a loop gives to `accelerator.log` lands in a record; `watch` puts the loop under watch in the same one."""

    name = "safelight"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, run: str | Path | None = None, *, step: int = 0) -> None:
        """`run`: the folder of the record; `step`: updates that were made before, when a loop is resumed."""
        super().__init__()
        self._run, self._step = run, step
        self._watched_run: WatchedRun | None = None
        self._watch: Watch | None = None
        self._logged = step  # calls of `log` that did not say their step

    @on_main_process
    def start(self) -> None:
        _ = self.tracker

    def watch(
        self, model: Any, optimizer: Any = None, *, on_finding: OnFinding | None = None, **given: Any
    ) -> Watch | NullWatch:
        """`safelight.watch`, into the record of this tracker, with what that takes (ema, process, scaler, prediction,
        sampler, data, sample_every, evaluate_every, features, target_distance, on_finding). Call it after
        `accelerator.init_trackers`."""
        names = ("sample_every", "evaluate_every", "features", "target_distance")
        often = {name: given.pop(name) for name in names if name in given}
        arguments = WatchArguments(model, optimizer, previews=PreviewIntervals(**often), **given)
        opened = open_watch(arguments, lambda: self.tracker, self._step, print_to_stderr, on_finding)
        self._watch = opened if isinstance(opened, Watch) else None
        return opened

    @property
    def tracker(self) -> WatchedRun:
        """The open folder and record."""
        if self._watched_run is None:
            self._watched_run = WatchedRun(self._run, self._step, print_to_stderr)
        return self._watched_run

    @on_main_process
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        self.tracker.record.event(self._step, "config", **{str(name): value for name, value in values.items()})

    @on_main_process
    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Numbers go into the record as readings; everything else as one event."""
        place = self._place(step)
        numbers = {name: float(value) for name, value in values.items() if _is_number(value)}
        words = {name: str(value) for name, value in values.items() if name not in numbers}
        if numbers:
            self.tracker.record.add(place, numbers)
        if words:
            self.tracker.record.event(place, "log", **words)
        self.tracker.beat(place)

    def _place(self, step: int | None) -> int:
        """As it is said; else the update that the watch is at, or else one more than the last time."""
        if step is not None:
            return step
        if self._watch is not None:
            return self._watch.updates
        self._logged += 1
        return self._logged - 1

    @on_main_process
    def log_images(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Each value: images as [n, height, width, channels] or [n, channels, height, width]; uint8 or in [0, 1].
        Pictures that cannot be made of them are reported, and cost the training nothing."""
        try:
            self._draw(values, self._step if step is None else step)
        except Exception as error:
            print_to_stderr(f"Safelight's tracker could not keep a picture ({type(error).__name__}: {error}).")

    def _draw(self, values: Mapping[str, Any], place: int) -> None:
        folder = self.tracker.folder.samples
        for name, images in values.items():
            for number, pixels in enumerate(_pixels(images)):
                slug = "".join(letter if letter.isalnum() else "_" for letter in name)
                path = folder / f"{slug}_{place:08d}_{number:03d}.png"
                save_png(Image.fromarray(pixels), path, self.tracker.folder.disk)
                self.tracker.record.picture(place, f"{name}/{number}", path)

    @on_main_process
    def finish(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self.tracker.close()


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, RuntimeError):  # also a tensor of several numbers
        return False
    return not isinstance(value, str)


def _pixels(images: Any) -> list[np.ndarray]:
    found = []
    for image in images:
        if isinstance(image, Tensor):
            image = image.detach().cpu()
            image = image if image.dtype == torch.uint8 else image.float()
        array = np.asarray(image)
        if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
            array = array.transpose(1, 2, 0)
        if array.dtype != np.uint8:
            array = (np.nan_to_num(array.astype(np.float32)) * 255).round().clip(0, 255).astype(np.uint8)
        found.append(array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array)
    return found
