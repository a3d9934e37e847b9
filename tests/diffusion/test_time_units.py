"""Processes in the time of a loop: the same coefficients, whatever t is and whatever the network is told."""

from __future__ import annotations

import pytest
import torch

from safelight.diffusion import time_mappings
from safelight.diffusion.process import cosine_flow, edm, linear_flow
from safelight.diffusion.time_units import retold, share_of, timed

SHARE = torch.linspace(0.01, 0.99, 33, dtype=torch.float64)
X = torch.randn(33, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("clock", time_mappings.USUAL_CLOCKS, ids=lambda clock: clock.words)
@pytest.mark.parametrize("told", time_mappings.USUAL_CLOCKS[:5], ids=lambda clock: clock.words)
@pytest.mark.parametrize(("family", "sigma_data"), [("flow", None), ("vp", None), ("ve", None), ("ve", 0.7)])
def test_coefficients_and_calls(
    family: str, sigma_data: float | None, clock: time_mappings.TimeMapping, told: time_mappings.TimeMapping
) -> None:
    process = timed(family, clock, told, sigma_data=sigma_data, ends=(0.002, 0.99))
    t = clock.time(SHARE)
    torch.testing.assert_close(share_of(process, t), SHARE, rtol=1e-9, atol=1e-12)
    a, s = process.at(t)
    kept = {"flow": a + s, "vp": a * a + s * s, "ve": a}[family]
    torch.testing.assert_close(kept, torch.ones_like(kept))
    shown, said = process.input(X, t)
    assert (shown is X) == (sigma_data is None)
    if sigma_data is not None:
        torch.testing.assert_close(shown, X / (s.square() + sigma_data**2).sqrt()[:, None])
    seen, back = process.seen(shown, clock.time(SHARE) if process.c_noise is None else told.time(SHARE))
    torch.testing.assert_close(seen, X, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(share_of(process, back), SHARE, rtol=1e-6, atol=1e-9)
    if process.c_noise is not None:
        torch.testing.assert_close(said.double(), told.time(SHARE), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("process", [linear_flow(), cosine_flow(), edm()], ids=["flow", "cosine", "edm"])
def test_a_process_of_the_users_own_is_told_otherwise(process: object) -> None:
    assert isinstance(process, type(linear_flow()))
    other = retold(process, time_mappings.LOG_SIGMA)
    t = torch.linspace(process.first + 0.1, process.last * 0.9, 9, dtype=torch.float64)
    assert other.c_noise is not None
    assert other.time_from_c_noise is not None
    torch.testing.assert_close(other.time_from_c_noise(other.c_noise(t)), t, rtol=1e-4, atol=1e-4)
