"""Readings of an update equal what a plain loop over the weights would give."""

from __future__ import annotations

import pytest
import torch
from monitored import finished, monitored_network

from safelight.monitors.parameters import find_parts, trainable_parameters
from safelight.monitors.updates import UpdateMonitor


def test_the_ratio_of_an_update_to_its_weights() -> None:
    model = monitored_network()
    parameters = list(model.parameters())
    monitor = UpdateMonitor(find_parts(trainable_parameters(model)), parameters)
    before = [p.detach().clone() for p in parameters]
    monitor.before()
    with torch.no_grad():
        for number, parameter in enumerate(parameters):
            parameter.add_(0.01 * (number + 1))
    average = [weight * 0.9 for weight in before]
    reading = finished(monitor.after(average))
    moved = torch.cat([(p - b).flatten() for p, b in zip(parameters[:2], before[:2], strict=True)]).norm()
    weights = torch.cat([b.flatten() for b in before[:2]]).norm()
    assert reading["update/ratio/first"] == pytest.approx((moved / weights).item(), rel=1e-5)
    assert reading["weight/norm/first"] == pytest.approx(weights.item())
    apart = torch.cat([(p - a).flatten() for p, a in zip(parameters, average, strict=True)]).norm()
    length = torch.cat([b.flatten() for b in before]).norm()
    assert reading["ema/distance"] == pytest.approx((apart / length).item(), rel=1e-5)
