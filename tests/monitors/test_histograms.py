"""Histograms of weights count what numpy would."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from monitored import monitored_network

from safelight.monitors.histograms import weight_histograms
from safelight.monitors.modules import find_parts, trained


def test_histograms_count_every_finite_weight_of_a_part() -> None:
    model = monitored_network()
    named = trained(model)
    parts, weights = find_parts(named), [parameter for _, parameter in named]
    with torch.no_grad():
        weights[0][0, 0] = math.nan
        weights[3].zero_()
    found = weight_histograms(parts, weights)
    assert tuple(found) == parts.names
    for index, name in enumerate(parts.names):
        flat = np.concatenate(
            [w.detach().numpy().ravel() for i, w in zip(parts.index, weights, strict=True) if i == index]
        )
        flat = flat[np.isfinite(flat)]
        counts, edges = found[name]
        assert counts.sum() == len(flat)
        assert (edges[0], edges[-1]) == (pytest.approx(flat.min()), pytest.approx(flat.max()))
        assert np.abs(counts - np.histogram(flat, edges)[0]).sum() <= 2  # a weight on an edge may go either way
