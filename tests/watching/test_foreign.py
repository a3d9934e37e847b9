"""Schedules, EMAs, optimizers and wrappers of other people are recognised."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from loops import Denoiser
from torch import nn

from safelight.errors import UsageError
from safelight.monitors.parameters import unwrapped
from safelight.watching.foreign import bare_optimizer, ema_of, log_snr_of


def test_log_snr_of_a_table_falls() -> None:
    assert (np.diff(log_snr_of(torch.linspace(1.0, 0.0, 100, dtype=torch.float64))) < 0).all()


def test_averages_are_found_in_what_people_use() -> None:
    from diffusers.training_utils import EMAModel

    model, copy = Denoiser(), Denoiser()
    named = list(model.named_parameters())
    wrapper = nn.Module()
    wrapper.ema_model = copy
    for ema in (copy, wrapper, dict(copy.named_parameters()), list(copy.parameters()), EMAModel(copy.parameters())):
        found = ema_of(ema, named)
        assert found is not None, type(ema)
        assert all(torch.equal(a, b) for a, b in zip(found, copy.parameters(), strict=True))
    for stranger in (nn.Linear(2, 2), object(), [torch.zeros(1)], {}):
        assert ema_of(stranger, named) is None


def test_wrappers_are_looked_through() -> None:
    from accelerate import Accelerator

    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters())
    accelerator = Accelerator(cpu=True)
    prepared, wrapped = accelerator.prepare(model, optimizer)
    assert unwrapped(prepared) is model
    assert isinstance(bare_optimizer(wrapped), torch.optim.AdamW)
    with pytest.raises(UsageError, match="torch optimizer"):
        bare_optimizer(object())
