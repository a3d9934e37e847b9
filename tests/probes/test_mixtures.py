"""What x_t and target are made of, in loops that declare nothing."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from safelight import checks
from safelight.probes.forward_pass import ForwardPass, ProcessSpec
from safelight.probes.mixtures import MAX_SAMPLES, NoisingFit, fit

SAMPLES = 64


def made(kind: str, dtype: torch.dtype = torch.float32) -> ForwardPass:
    draw = torch.Generator().manual_seed(0)
    x0, noise, other = (torch.randn(SAMPLES, 1, 8, 8, generator=draw, dtype=torch.float64) for _ in range(3))
    x0 = torch.nn.functional.avg_pool2d(x0, 3, 1, 1) * 2  # smooth, as images are
    t = torch.rand(SAMPLES, generator=draw, dtype=torch.float64)
    s = t.view(-1, 1, 1, 1)
    x_t, target = (1 - s) * x0 + s * noise, noise - x0
    if kind == "fresh target":
        target = other - x0
    if kind == "fresh input":
        x_t = (1 - s) * x0 + s * other
    if kind == "teacher":
        target = torch.nn.functional.avg_pool2d(other, 3, 1, 1) * 3
    shown = t.flip(0) if kind == "shuffled" else t
    given = [each.to(dtype) for each in (x0, noise, x_t, target)]
    return ForwardPass(
        torch.zeros(()), t=shown, x0=given[0], noise=given[1], x_t=given[2],
        target=None if kind == "no target" else given[3],
    )  # fmt: skip


def readings_of(micro_batch: ForwardPass) -> tuple[NoisingFit, dict[str, float]]:
    probe = NoisingFit()
    pending = probe.measure(micro_batch)
    assert pending is not None
    return probe, dict(pending.finish(*(each.numpy() for each in pending.tensors)))


@pytest.mark.parametrize(
    ("kind", "process", "row", "time"),
    [("healthy", "flow", "flow", 1.0), ("shuffled", "flow", "flow", 0.0), ("no target", "flow", None, 1.0)],
)
def test_a_flow_is_recognised(kind: str, process: str, row: str | None, time: float) -> None:
    probe, readings = readings_of(made(kind))
    assert probe.recognised is not None
    assert (probe.recognised.process, probe.recognised.target) == (process, row)
    assert readings[f"check/{checks.MIXTURE_TIME}"] == time
    assert readings[f"check/{checks.MIXTURE_INPUT}"] < 1e-6


@pytest.mark.parametrize(
    ("kind", "place", "is_noise"),
    [
        ("fresh target", checks.MIXTURE_OF_TARGET, True),
        ("fresh input", checks.MIXTURE_OF_INPUT, True),
        ("teacher", checks.MIXTURE_OF_TARGET, False),
    ],
)
def test_what_is_left_is_told_apart(kind: str, place: tuple[checks.ProbeReading, ...], is_noise: bool) -> None:
    _, readings = readings_of(made(kind))
    share, kurtosis, neighbours = (readings[f"check/{check}"] for check in place)
    assert share > 0.3
    assert (2.6 < kurtosis < 3.4 and abs(neighbours) < 0.1) == is_noise


def test_half_precision_is_recognised_too() -> None:
    probe, _ = readings_of(made("healthy", torch.bfloat16))
    assert probe.recognised is not None
    assert probe.recognised.process == "flow"


@pytest.mark.parametrize("missing", ["x0", "noise", "x_t"])
def test_a_loop_that_passes_too_little_is_left_alone(missing: str) -> None:
    """Only its times are remembered; without them nothing is."""
    given = dataclasses.replace(made("healthy"), **{missing: None})
    probe, readings = readings_of(given)
    assert readings == {}
    assert probe.recognised is None
    assert probe.settle(ProcessSpec()) is None
    assert NoisingFit().measure(dataclasses.replace(given, t=None)) is None


def test_nothing_is_fitted_any_more_after_enough_samples() -> None:
    probe = NoisingFit()
    for _ in range(MAX_SAMPLES // SAMPLES):
        assert not probe.is_done
        probe.measure(made("healthy"))
    assert probe.is_done


def test_a_fit_is_exact() -> None:
    x0, noise = torch.randn(4, 9, dtype=torch.float64), torch.randn(4, 9, dtype=torch.float64)
    a, b, left = fit(0.3 * x0 - 2 * noise, x0, noise)
    torch.testing.assert_close(a, torch.full_like(a, 0.3))
    torch.testing.assert_close(b, torch.full_like(b, -2.0))
    assert left.abs().max() < 1e-12
