"""What a network with a preconditioning of its own, as EDM's, shows to the one inside of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from safelight.capturing.mixing import RELATION_TOLERANCE, Mixing, Numbers, explain_by, relation_of
from safelight.capturing.trace import SeenCall, Trace, tensors_in


def preconditioning(trace: Trace, call: SeenCall, mixing: Mixing, numbers: Numbers) -> Inside | None:
    """Of x0 + σ·noise: what the network shows to the one inside of it, where that is c_in·x_t, or where c_skip and
    c_out of its answer are those of EDM."""
    x0, noise = mixing.x0.tensor, mixing.noise.tensor
    inside = [each for each in trace.calls if call.order < each.order and each.ended < call.ended]
    for each in inside if mixing.relation == "ve" else ():
        for given in tensors_in((*each.inputs, *each.named.values())):
            found = explain_by(given, x0, noise, numbers) if given.shape == x0.shape else None
            if found is None:
                continue
            a, s = (part.numpy() for part in found)
            if relation_of(a, s) == "edm":
                return Inside(float(np.sqrt(np.median(1 / (a * a) - (s / a) ** 2))), 0.0)
            if (spread := _sigma_data_of_answer(call, each, given, mixing, numbers)) is not None:
                ratio = a * np.sqrt(mixing.s**2 + spread**2)
                return Inside(spread, float(np.median(np.abs(ratio - 1))))
    return None


@dataclass(frozen=True, slots=True)
class Inside:
    """The network inside of a preconditioned one."""

    sigma_data: float
    error: float
    """How far its input is from c_in·x_t, in c_in."""


def _sigma_data_of_answer(
    call: SeenCall, inner: SeenCall, given: Tensor, mixing: Mixing, numbers: Numbers
) -> float | None:
    """That of c_skip = sigma_data² / (σ² + sigma_data²) and c_out = σ·sigma_data / √(σ² + sigma_data²), where the
    answer is c_skip·x_t + c_out·F."""
    whole, part = call.answer, inner.answer
    if whole is None or part is None or not whole.shape == part.shape == given.shape:
        return None
    if (found := explain_by(whole.detach(), given, part.detach(), numbers)) is None:
        return None
    skip, out = (each.numpy() for each in found)
    sigma = mixing.s
    if not ((skip > 0) & (skip < 1)).all():
        return None
    spread = float(np.sqrt(np.median(skip * sigma**2 / (1 - skip))))
    root = np.sqrt(sigma**2 + spread**2)
    is_edm = np.quantile(np.abs(out - sigma * spread / root), 0.95) <= RELATION_TOLERANCE
    return spread if is_edm and np.quantile(np.abs(skip - (spread / root) ** 2), 0.95) <= RELATION_TOLERANCE else None
