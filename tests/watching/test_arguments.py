"""What a loop may show of itself, and what is refused in words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loops import Denoiser
from torch import nn

from safelight.errors import UsageError
from safelight.watching.arguments import PreviewIntervals, WatchArguments


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"schedule": object()}, "alphas_cumprod"),
        ({"prediction": "velocity field"}, "prediction is 'velocity field'"),
        ({"optimizer": object()}, "torch optimizer"),
        ({"space": "pixels"}, "space is 'pixels'. Use pixel or latent"),
        ({"sampler": lambda: None}, r"function of \(model, noise\)"),
    ],
)
def test_what_is_something_else_is_refused_in_words(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        WatchArguments(Denoiser(), **given)


def test_a_model_without_anything_to_train_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing to watch"):
        WatchArguments(nn.Linear(2, 2).requires_grad_(False))


def test_nothing_but_the_model_is_needed() -> None:
    arguments = WatchArguments(Denoiser(), torch.optim.SGD(Denoiser().parameters(), lr=0.1))
    assert arguments.prediction is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sample_every": -1}, "sample_every is -1"),
        ({"evaluate_every": 2.5}, "evaluate_every is 2.5"),
        ({"target_distance": 0}, "target_distance is 0"),
        ({"sample_every": True}, "sample_every is True"),
        ({"features": "vgg"}, "features is 'vgg'"),
    ],
)
def test_other_intervals_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        PreviewIntervals(**given)
