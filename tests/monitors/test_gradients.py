"""Readings of gradients equal what a plain loop over the numbers would give."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from monitored import finished, monitored_network, random_gradients

from safelight.monitors.gradients import GradientMonitor
from safelight.monitors.parameters import find_parts, trainable_parameters


def whole(norms: np.ndarray) -> float:
    return float(np.linalg.norm(norms))


def test_norms_by_part_are_those_of_their_parameters() -> None:
    model = monitored_network()
    parts, gradients = find_parts(trainable_parameters(model)), random_gradients(model)
    norms = torch.stack([gradient.norm() for gradient in gradients]).numpy()
    monitor = GradientMonitor(parts)
    reading = monitor.measure(norms, whole(norms), 1.0)
    assert reading["gradient/part/first"] == pytest.approx(
        torch.cat([g.flatten() for g in gradients[:2]]).norm().item()
    )
    assert reading["gradient/part/blocks.1"] == pytest.approx(
        torch.cat([g.flatten() for g in gradients[4:]]).norm().item()
    )
    assert reading["gradient/norm"] == pytest.approx(torch.cat([g.flatten() for g in gradients]).norm().item())
    assert reading["gradient/clipped"] == 1
    assert reading["gradient/kept"] == pytest.approx(1 / reading["gradient/norm"])
    assert reading["gradient/nonfinite"] == 0
    free = monitor.measure(norms, whole(norms), math.inf)
    assert (free["gradient/clipped"], free["gradient/kept"]) == (0, 1)


def test_gradients_that_are_not_finite_are_counted_where_they_are() -> None:
    model = monitored_network()
    gradients = random_gradients(model)
    gradients[2][0, 0] = math.nan
    gradients[3][1] = math.inf
    norms = torch.stack([gradient.norm() for gradient in gradients]).numpy()
    reading = GradientMonitor(find_parts(trainable_parameters(model))).measure(norms, whole(norms), 1.0)
    assert reading["gradient/nonfinite"] == 2
    assert math.isnan(reading["gradient/norm"])
    assert math.isfinite(reading["gradient/part/first"])
    assert not math.isfinite(reading["gradient/part/blocks.0"])


def test_the_share_of_zeros_is_counted_by_part() -> None:
    model = monitored_network()
    gradients = random_gradients(model)
    gradients[0].zero_()
    gradients[4][0] = 0
    reading = finished(GradientMonitor(find_parts(trainable_parameters(model))).measure_zeros(gradients))
    assert reading["gradient/zero/first"] == pytest.approx(15 / 20)
    assert reading["gradient/zero/blocks.0"] == 0
    assert reading["gradient/zero/blocks.1"] == pytest.approx(5 / 12)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_single_numbers_are_those_of_the_whole_gradient(is_sparse: bool) -> None:
    model = monitored_network()
    gradients = random_gradients(model)
    gradients[0].zero_()
    gradients[4][0] = 0
    numbers = torch.cat([gradient.flatten() for gradient in gradients]).abs()
    gradients = [gradient.to_sparse() for gradient in gradients] if is_sparse else gradients
    reading = finished(GradientMonitor(find_parts(trainable_parameters(model))).measure_numbers(gradients))
    assert reading["gradient/largest"] == numbers.max().item()
    assert reading["gradient/mean"] == pytest.approx(numbers.mean().item())
    assert reading["gradient/smallest"] == numbers[numbers > 0].min().item() > 0


def test_a_gradient_of_zeros_has_no_smallest_number() -> None:
    model = monitored_network()
    gradients = [torch.zeros_like(gradient) for gradient in random_gradients(model)]
    reading = finished(GradientMonitor(find_parts(trainable_parameters(model))).measure_numbers(gradients))
    assert reading == {"gradient/largest": 0, "gradient/mean": 0}


def test_the_noise_scale_is_that_of_known_gradients() -> None:
    """Samples with a mean gradient of length 2 and a variance of 0.5 in each of 400 directions: 200 / 4 = 50."""
    generator = torch.Generator().manual_seed(0)
    monitor = GradientMonitor(find_parts(trainable_parameters(monitored_network())))
    mean = torch.full((400,), 2 / 20)
    scales = []
    for _ in range(800):
        samples = mean + torch.randn(32, 400, generator=generator) * 0.5**0.5
        norms = torch.stack([samples[:8].mean(0).norm(), samples.mean(0).norm()]).numpy()
        scales.append(monitor.measure_noise_scale(8, 32, norms).get("gradient/noise_scale", math.nan))
    assert np.nanmedian(scales[200:]) == pytest.approx(50, rel=0.15)
