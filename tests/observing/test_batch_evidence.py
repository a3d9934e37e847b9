"""What is shown of a batch that went wrong: the worst samples first, in numbers of a person, never at a price."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from safelight.diffusion.micro_batch import MicroBatch
from safelight.observing.batch_evidence import (
    MAX_SIDE,
    MOST_SHOWN,
    ReplayedPass,
    _worst,
    describe_inputs,
    numbers_of,
    show,
)
from safelight.pictures.grid import BROKEN
from safelight.processes.group import ProcessGroup


def micro(count: int, side: int = 8, t: torch.Tensor | None = None) -> MicroBatch:
    images = torch.linspace(-1, 1, count).view(-1, 1, 1, 1).expand(count, 1, side, side).clone()
    t = torch.arange(count) * 10 if t is None else t
    return MicroBatch(0, np.arange(count) + 100, images, torch.randn_like(images), t, None)


def passed(batch: MicroBatch) -> ReplayedPass:
    return ReplayedPass(batch, batch.x0 + 0.1 * batch.noise, 0.1 * batch.noise)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1.0, 3.0], {"min": 1, "max": 3, "mean": 2, "std": 1, "nonfinite": 0}),
        ([1.0, 3.0, math.nan, math.inf], {"min": 1, "max": 3, "mean": 2, "std": 1, "nonfinite": 0.5}),
        ([math.nan], {"min": math.nan, "max": math.nan, "mean": math.nan, "std": math.nan, "nonfinite": 1}),
    ],
)
def test_numbers_are_those_of_what_is_finite(values: list[float], wanted: dict[str, float]) -> None:
    assert numbers_of(torch.tensor(values)) == pytest.approx(wanted, nan_ok=True)


@pytest.mark.parametrize(
    ("t", "told"), [(torch.tensor([3, 999]), [3, 999]), (torch.tensor([0.25, 0.1]), [0.25, 0.1])], ids=["whole", "time"]
)
def test_timesteps_are_told_as_they_are(t: torch.Tensor, told: list[float]) -> None:
    facts = describe_inputs([micro(2, t=t)], ProcessGroup())
    assert (facts["samples"], facts["timesteps"]) == ([100, 101], told)
    assert (facts["image_min"], facts["image_max"], facts["image_nonfinite"]) == (-1.0, 1.0, 0.0)


def test_what_is_not_finite_comes_first_then_the_largest_answers() -> None:
    first, second = passed(micro(20)), passed(micro(4))
    first.prediction[7] = 50.0
    first.inputs.x0[3, 0, 0, 0] = math.nan
    found = _worst([first, second])
    assert [each.sample for each in found[:2]] == [103, 107]
    assert len(found) == MOST_SHOWN
    assert (found[0].pixels[0, 0, 0] == BROKEN).all()


def test_the_picture_is_small_however_large_the_images_are(tmp_path: Path) -> None:
    facts = show(lambda: [passed(micro(MOST_SHOWN + 9, side=500))], ProcessGroup(), tmp_path / "samples" / "a.png")
    assert facts["picture"] == "samples/a.png"
    with Image.open(tmp_path / "samples" / "a.png") as image:
        assert image.width <= 8 * (MAX_SIDE + 40)
        assert image.height <= 2 * (3 * MAX_SIDE + 60)


def latents() -> list[ReplayedPass]:
    return [ReplayedPass(micro(2), torch.zeros(2, 4, 8, 8), torch.zeros(2, 4, 8, 8))]


def broken() -> list[ReplayedPass]:
    raise RuntimeError("out of memory")


@pytest.mark.parametrize("replay", [latents, broken])
def test_what_cannot_be_shown_costs_the_training_nothing(tmp_path: Path, replay) -> None:
    assert show(replay, ProcessGroup(), tmp_path / "a.png") == {}
    assert not list(tmp_path.iterdir())


def test_a_full_disk_costs_the_picture_alone(tmp_path: Path) -> None:
    (tmp_path / "samples").write_text("a file where the folder should be")
    facts = show(lambda: [passed(micro(2))], ProcessGroup(), tmp_path / "samples" / "a.png")
    assert "picture" not in facts
    assert facts["prediction_nonfinite"] == 0
