"""Loss curves as healthy and sick runs have them: skewed by the draw of timesteps, independent from step to step."""

from __future__ import annotations

import numpy as np

LEVELS = 64  # noise levels that have a loss of their own


def healthy_curve(seed: int, steps: int | None = None, batch: int | None = None) -> np.ndarray:
    """[steps] of a run whose length, batch, prediction, learning, images and schedule are drawn from the seed."""
    draw = np.random.default_rng(seed)
    steps = steps or int(np.exp(draw.uniform(np.log(60), np.log(3000))))
    batch = batch or int(2 ** draw.integers(0, 9))
    place = np.linspace(0, 1, LEVELS)  # 0: least noise
    first, last = {
        "epsilon": (np.ones(LEVELS), np.exp(np.interp(place, [0, 0.2, 1], np.log([0.9, 0.2, 0.002])))),
        "sample": (np.full(LEVELS, draw.uniform(0.1, 1)), np.exp(np.interp(place, [0, 1], np.log([0.002, 0.3])))),
        "v_prediction": (np.interp(place, [0, 1], [1, draw.uniform(0.2, 1)]), 0.05 + 0.3 * (1 - 2 * place) ** 2),
        "weighted": (np.exp(-4 * place), np.exp(-4 * place) * np.interp(place, [0, 1], [0.5, 0.05])),
    }[str(draw.choice(["epsilon", "sample", "v_prediction", "weighted"]))]
    worse = draw.choice([1.0, 1.3, 3.0])  # the first prediction is not always 0
    pace, delay = np.exp(draw.uniform(np.log(2), np.log(400))), draw.choice([0, 10, 50])
    clock = np.maximum(np.arange(steps) - delay, 0) / pace
    left = (1 + clock) ** -draw.uniform(0.5, 1.5) if draw.random() < 0.5 else np.exp(-clock)
    if draw.random() < 0.2:
        left = left * 0  # a trained model is trained on
    decayed = 1 - draw.choice([0, 0.15]) * (np.arange(steps) > 0.8 * steps)  # by the learning rate
    level = draw.integers(0, LEVELS, (steps, batch))
    images = np.exp(draw.uniform(0.05, 0.5) * draw.standard_normal((steps, batch)))
    losses = (last * decayed[:, None])[np.arange(steps)[:, None], level]
    return ((losses + left[:, None] * np.maximum(worse * first - last, 0)[level]) * images).mean(1)


def spiked(losses: np.ndarray, factor: float = 35.0, length: int = 40) -> np.ndarray:
    """From the middle on, for some steps."""
    return np.where(_since_middle(losses) & (np.arange(len(losses)) < len(losses) // 2 + length), factor, 1.0) * losses


def dropped(losses: np.ndarray, factor: float = 10.0) -> np.ndarray:
    return np.where(_since_middle(losses), 1 / factor, 1.0) * losses


def rising(losses: np.ndarray, factor: float = 3.0) -> np.ndarray:
    """In the later half, steadily."""
    return losses * np.interp(np.arange(len(losses)), [0.5 * len(losses), len(losses)], [1, factor])


def waving(losses: np.ndarray, factor: float = 3.0, waves: int = 4) -> np.ndarray:
    """Up by a factor and down again, in the later half."""
    phase = 2 * np.pi * waves * np.linspace(-1, 1, len(losses))
    return losses * np.exp(np.log(factor) * np.where(_since_middle(losses), (1 - np.cos(phase)) / 2, 0))


def stuck_at_noise(seed: int, steps: int = 600, values: int = 8 * 64) -> np.ndarray:
    """Mean square of noise: the loss of a network that predicts none."""
    return np.random.default_rng(seed).chisquare(values, steps) / values


def _since_middle(losses: np.ndarray) -> np.ndarray:
    return np.arange(len(losses)) >= len(losses) // 2
