"""Runs on several processes: what each of them has after a few updates, kept for the test to compare."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launch import Launch
from tiny import tiny
from torch import Tensor

from safelight.data.prepare import open_images
from safelight.processes.group import ProcessGroup
from safelight.training.build import Setup, build, infer_data_settings
from safelight.training.step import Stepper

SIZE = {"train__batch_size": 24}


def build_with(group: ProcessGroup, **settings: object) -> Setup:
    config = tiny(**SIZE | settings)
    images = open_images(config.data)
    return build(infer_data_settings(config, images), images, print, group=group)


def taken(parts: Setup, count: int = 2) -> list[Tensor]:
    """Weights and buffers after some updates."""
    for step in range(count):
        parts.stepper.step(parts.loader.load(step), step)
    return [value.detach().clone() for value in parts.state.model.state_dict().values()]


def digest(tensors: list[Tensor]) -> str:
    return hashlib.sha256(b"".join(t.contiguous().numpy().tobytes() for t in tensors)).hexdigest()


def keep(folder: Path, rank: int, **facts: object) -> None:
    (folder / f"{rank}.json").write_text(json.dumps(facts))


def kept(folder: Path, count: int) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]


def launch(count: int, folder: Path, act: Callable[[int], object], **environment: str) -> Launch:
    ended = Launch(count, act, folder, **environment)
    codes = ended.codes()
    assert codes == [0] * count, "\n".join(ended.said(rank) for rank in range(count))
    return ended


def at(step: int, who: int, do: Callable[[], object]) -> Callable[[int], None]:
    """Lets something happen to one process in the middle of a step."""

    def prepare(rank: int) -> None:
        take = Stepper.step

        def taking(self: Stepper, inputs: Any, number: int, *more: Any, **named: Any) -> Any:
            if number == step and rank == who:
                do()
            return take(self, inputs, number, *more, **named)

        Stepper.step = taking  # only in the fork

    return prepare
