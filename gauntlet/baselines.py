"""Rules of folklore on the same runs: what loss and gradient norm alone would have said.

The rules are those of section 3 of the research: three standard deviations, Lightning's three times the mean of ten,
absolute norms, halves that differ by less than one per cent, sign changes; and the guess that it is the rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

WINDOW = 50
Rule = Callable[[np.ndarray, np.ndarray], bool]


def three_sigma(losses: np.ndarray, _: np.ndarray) -> bool:
    return any(
        losses[i] > losses[i - WINDOW : i].mean() + 3 * losses[i - WINDOW : i].std() for i in range(WINDOW, len(losses))
    )


def lightning(losses: np.ndarray, _: np.ndarray) -> bool:
    return any(losses[i] >= 3 * losses[i - 10 : i].mean() for i in range(10, len(losses)))


def exploding(_: np.ndarray, norms: np.ndarray) -> bool:
    return bool((norms > 100).any())


def vanishing(_: np.ndarray, norms: np.ndarray) -> bool:
    return bool((norms < 1e-7).any())


def not_finite(losses: np.ndarray, norms: np.ndarray) -> bool:
    return not (np.isfinite(losses).all() and np.isfinite(norms).all())


def plateau(losses: np.ndarray, _: np.ndarray) -> bool:
    half = len(losses) // 2
    return half > 0 and bool(losses[:half].mean() - losses[half:].mean() < 0.01 * abs(losses[:half].mean()))


def oscillating(losses: np.ndarray, _: np.ndarray) -> bool:
    signs = np.sign(np.diff(losses[-100:]))
    return len(signs) >= 99 and int((signs[1:] != signs[:-1]).sum()) > 60


RULES: dict[str, tuple[Rule, str]] = {
    "three sigma": (three_sigma, "loss.spike"),
    "Lightning's spike": (lightning, "loss.spike"),
    "gradient norm > 100": (exploding, "lr.too-high"),
    "gradient norm < 1e-7": (vanishing, "model.no-gradient"),
    "not finite": (not_finite, "loss.nonfinite"),
    "plateau": (plateau, "lr.too-low"),
    "oscillation": (oscillating, "lr.too-high"),
}
"""Each with the cause that it is usually taken for."""


def complaints(losses: Sequence[float], norms: Sequence[float]) -> list[str]:
    """The rules that would have spoken."""
    series = np.asarray(losses, float), np.asarray(norms, float)
    with np.errstate(all="ignore"):
        return [name for name, (rule, _) in RULES.items() if rule(*series)]
