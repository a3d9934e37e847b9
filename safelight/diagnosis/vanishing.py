"""Gradients that fall by orders of magnitude from one part of a network to another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from safelight.diagnosis.finding import Fix
from safelight.diagnosis.rule import Detection, Detector
from safelight.diagnosis.run_history import RunHistory
from safelight.vocabulary import GRADIENT_PART, WEIGHT_NORM

# Smallest gradient of a part over the largest, each for its weights; 1.4e-4 and more in healthy runs
VANISHED_RATIO = 1e-5
CURE = "Residual connections, normalisation, and activations that do not saturate (SiLU, GELU)."


def weakest_part(run: RunHistory, *, above_zero: bool = False) -> tuple[str, float]:
    """The part with the smallest gradient for its weights, and that over the largest; of the later half of the run.
    Rows of an embedding get gradients only where they are used: embeddings are left out. `above_zero`: parts without
    any gradient too."""
    sizes: dict[str, float] = {}
    for part in run.parts(GRADIENT_PART):
        norms, weights = (run.numbers(f"{family.name}/{part}") for family in (GRADIENT_PART, WEIGHT_NORM))
        if "emb" not in part and len(norms) > 1 and len(weights) and weights[-1] > 0:
            sizes[part] = float(np.median(norms[len(norms) // 2 :]) / weights[-1])
    if above_zero:
        sizes = {part: size for part, size in sizes.items() if size > 0}
    if len(sizes) < 2 or not max(sizes.values()) > 0:
        return "", 1.0
    part = min(sizes, key=lambda each: sizes[each])
    return part, sizes[part] / max(sizes.values())


def or_vanishes(detector: Detector, fix: str) -> Detector:
    """The same detection; where the gradient falls from part to part until it is 0, its `fix` says that too."""

    def detect(run: RunHistory) -> Detection | None:
        found = detector(run)
        part, share = weakest_part(run, above_zero=True)
        if found is None or not share < VANISHED_RATIO:
            return found
        before = found.fix or Fix(fix)
        words = (
            f"First of all the gradient vanishes on its way through the network: that of {part} is {share:.1g} of the "
            f"largest one of a part, each for the length of its weights. {CURE} If that is not it: "
        )
        return replace(found, fix=replace(before, text=words + before.text[:1].lower() + before.text[1:], set={}))

    return detect
