"""The same curve as different tools log it: rows of a log, by the way they were logged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Rows = list[dict[str, Any]]


def loggings(losses: np.ndarray, rates: np.ndarray, norms: np.ndarray) -> Iterator[tuple[str, Rows]]:
    steps = range(len(losses))
    yield "each", [{"step": k, "loss": losses[k], "lr": rates[k], "grad_norm": norms[k]} for k in steps]
    for every in (10, 50):
        at = range(every - 1, len(losses), every)
        yield f"one in {every}", [{"step": k, "loss": losses[k], "lr": rates[k], "grad_norm": norms[k]} for k in at]
        yield f"mean of {every}", [{"step": k, "loss": f"{losses[k - every + 1 : k + 1].mean():.4f}"} for k in at]
    for decay in (0.5, 0.9, 0.99):
        yield f"EMA of {decay}", [{"step": k, "loss": each} for k, each in enumerate(_average(losses, decay))]
    sums = np.cumsum(np.nan_to_num(np.insert(losses, 0, 0), nan=np.nan, posinf=np.nan))
    yield (
        "moving mean",
        [{"step": k, "avg_loss": (sums[k + 1] - sums[max(0, k - 99)]) / min(k + 1, 100)} for k in steps],
    )
    yield "running mean", [{"step": k, "loss": sums[k + 1] / (k + 1)} for k in steps]
    yield "two digits", [{"step": k, "loss": f"{losses[k]:.2f}", "lr": f"{rates[k]:.6f}"} for k in steps]
    yield (
        "epochs",
        [{"epoch": k, "train_loss": p.mean()} for k, p in enumerate(np.array_split(losses, len(losses) // 20))],
    )
    yield "no steps", [{"loss": loss} for loss in losses]
    uneven = np.unique(np.cumsum(np.random.default_rng(0).integers(1, 4, len(losses))))
    uneven = uneven[uneven < len(losses)]
    yield "uneven", [{"step": int(k), "loss": f"{losses[k]:.3g}", "lr": f"{rates[k]:.2e}"} for k in uneven]


def _average(losses: np.ndarray, decay: float) -> Iterator[float]:
    average = losses[0]
    for loss in losses:
        average = decay * average + (1 - decay) * loss
        yield average
