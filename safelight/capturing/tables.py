"""The table of alphas_cumprod that a loop reads at its timesteps, whatever form of it the loop keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from safelight.capturing.mixing import MOST_SAMPLES, RELATION_TOLERANCE, Mixing, lacks_root
from safelight.capturing.trace import SeenCall, Trace

TABLE = 1e-4  # of a², between a table and what was mixed: float32 has 1e-6


def readings_of(trace: Trace, call: SeenCall, size: int) -> list[np.ndarray]:
    """Of tables, one number for each of the samples that are compared."""
    found = []
    for lookup in trace.lookups:
        places = lookup.places.reshape(-1)
        if lookup.order < call.order and len(places) == size:
            read = lookup.table.reshape(-1)[places[:MOST_SAMPLES].to(lookup.table.device)]
            found.append(read.to("cpu").double().numpy())
    return found


def table_of(
    trace: Trace, call: SeenCall, t: Tensor | None, mixing: Mixing, row: tuple[np.ndarray, np.ndarray] | None
) -> Tensor | None:
    """Whatever the loop keeps: alphas_cumprod, one minus it, or the root of either. It is the newest vector that was
    read at t. Where no reading was seen, all vectors whose entries at t are right have to be one: a table before it
    was clamped agrees wherever nothing was clamped."""
    if t is None or t.is_floating_point() or t.dtype == torch.bool:
        return None
    times = t.detach().to("cpu").long()
    places = times[: len(mixing.a)]
    if len(places.unique()) < 4 or int(places.min()) < 0:
        return None
    read = [
        lookup.table.reshape(-1)
        for lookup in trace.lookups
        if lookup.order < call.order and torch.equal(lookup.places.reshape(-1).to("cpu").long(), times)
    ]
    if mixing.relation != "vp":
        return _unrooted_among(read, places, mixing, row)
    if found := _alphas_among(read, places, mixing):
        return found[0].alphas
    made = [made.tensor for made in trace.vectors.values() if made.order < call.order and made.tensor.dim() == 1]
    found = _alphas_among(made, places, mixing)
    return found[0].alphas if found and all(found[0].is_like(each) for each in found) else None


def _unrooted_among(
    tables: Sequence[Tensor], places: Tensor, mixing: Mixing, row: tuple[np.ndarray, np.ndarray] | None
) -> Tensor | None:
    """Of x_t = ᾱ·x0 + (1 − ᾱ)·noise and the like. A flow may read its noise levels of a table as well: then the
    target is a velocity or the image, and not the noise or v."""
    is_flow = mixing.relation == "flow"
    if (is_flow and (row is None or _is_of_flow(*row))) or mixing.relation not in ("flow", "table"):
        return None
    for table in reversed(tables):
        if table.is_floating_point() and len(table) > max(int(places.max()), len(places.unique())):
            whole = table.detach().to("cpu").double()
            for alphas in (whole,) if is_flow else (whole, whole.square(), 1 - whole, 1 - whole.square()):
                kept = alphas[places].numpy()
                if bool(((alphas >= 0) & (alphas <= 1)).all()) and lacks_root(mixing.a, mixing.s, kept):
                    return alphas
    return None


def _is_of_flow(p: np.ndarray, q: np.ndarray) -> bool:
    """Whether a target is noise − x0, its opposite, or x0."""
    velocity = np.abs(np.abs(p) - 1).max() < RELATION_TOLERANCE and np.abs(p + q).max() < RELATION_TOLERANCE
    clean = np.abs(p - 1).max() < RELATION_TOLERANCE and np.abs(q).max() < RELATION_TOLERANCE
    return bool(velocity or clean)


@dataclass(frozen=True, slots=True)
class _Alphas:
    """alphas_cumprod as a vector of the loop gives them, and how exactly."""

    alphas: Tensor
    error: float
    """What is not known of each entry, beside a share of it."""

    def is_like(self, other: _Alphas) -> bool:
        if len(self.alphas) != len(other.alphas):
            return False
        apart, larger = (self.alphas - other.alphas).abs(), torch.maximum(self.alphas, other.alphas)
        return bool((apart <= TABLE * larger + 2 * (self.error + other.error)).all())


def _alphas_among(tables: Sequence[Tensor], places: Tensor, mixing: Mixing) -> list[_Alphas]:
    """The most exact first, and of these the newest. One minus a number that is rounded does not tell how near 0 it
    is: an entry below its error is given as its error, which is a little signal and not none."""
    found: list[_Alphas] = []
    for table in reversed(tables):
        if not table.is_floating_point() or len(table) <= int(places.max()):
            continue
        whole, rounding = table.detach().to("cpu").double(), torch.finfo(table.dtype).eps
        for alphas, error in ((whole, 0), (whole.square(), 0), (1 - whole, rounding), (1 - whole.square(), rounding)):
            if len(alphas) > len(places.unique()) and np.nanmax(np.abs(alphas[places].numpy() - mixing.a**2)) < TABLE:
                if bool(((alphas >= 0) & (alphas <= 1)).all()):
                    found.append(_Alphas(alphas.clamp(min=error), error))
                break
    return sorted(found, key=lambda each: each.error)
