"""The images and labels that a step had, against those of the dataset."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from safelight import checks
from safelight.config import Config
from safelight.data.images import Images
from safelight.monitors.reading_buffer import PendingReading
from safelight.observing.observer import StepResult
from safelight.probes.probe_runner import with_check_prefix

CLOSE, EVERY = 16, 8  # the first steps are all compared, then one of so many: a batch of whole numbers, without waiting


class BatchCheck:
    """A label may be its image's or the one for no label; an image may not be one that is held out."""

    def __init__(
        self, config: Config, images: Images, held_out_ids: np.ndarray, send: Callable[[Tensor], Tensor]
    ) -> None:
        """`send` brings a tensor to the device."""
        self._send = send
        conditional, labels = config.model.conditional, images.labels
        self._labels = labels.astype(np.int64) if conditional and labels is not None else None
        self._none = config.data.classes
        self._is_held_out = np.isin(np.arange(len(images)), held_out_ids) if len(held_out_ids) else None

    def check(self, view: StepResult) -> list[PendingReading]:
        if view.step >= CLOSE and view.step % EVERY:
            return []
        pieces: list[PendingReading] = []
        if self._is_held_out is not None:
            share = float(np.mean([self._is_held_out[micro.ids].mean() for micro in view.inputs]))
            pieces.append(PendingReading((), partial(with_check_prefix, {checks.ROWS_HELD_OUT: share})))
        if self._labels is not None:
            pieces.append(PendingReading((self._moved(view, self._labels),), _read_moved))
        return pieces

    def _moved(self, view: StepResult, labels: np.ndarray) -> Tensor:
        """The share of labels that are another image's, on the device."""
        shares = []
        for micro in view.inputs:
            assert micro.labels is not None, "conditional runs have labels"
            own = self._send(torch.from_numpy(labels[micro.ids]))
            shares.append(((micro.labels != own) & (micro.labels != self._none)).float().mean())
        return torch.stack(shares).mean().reshape(1)


def _read_moved(share: np.ndarray) -> dict[str, float]:
    return with_check_prefix({checks.ROWS_LABELS_MOVED: float(share[0])})
