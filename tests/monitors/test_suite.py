"""All monitors together: which readings a step has, and what a checkpoint takes over."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from monitored import finished, monitored_network, random_gradients

from safelight.monitors.loss import noise_binning_of_table
from safelight.monitors.suite import FULL_READ_INTERVAL, Monitors, PartialGradient

LOG_SNR = np.linspace(8, -8, 1000)
EVERY_STEP = {"gradient/norm", "gradient/limit", "gradient/clipped", "precision/scale", "update/refused", "loss/mean"}
NUMBERS = {"gradient/largest", "gradient/mean", "gradient/smallest"}
DEEP = {"gradient/zero/first", "update/ratio/first", "weight/norm/first"} | NUMBERS


def take_step(
    monitors: Monitors,
    step: int,
    *,
    t: torch.Tensor | None = None,
    partial_gradient: PartialGradient | None = None,
    average: list[torch.Tensor] | None = None,
) -> dict[str, float]:
    gradients = random_gradients(monitored_network(), seed=step)
    norms = torch.stack([gradient.norm() for gradient in gradients])
    monitors.before_update(step, gradients)
    zero, one = torch.zeros(()), torch.ones(1)
    pieces = monitors.after_update(
        step, loss=torch.arange(4.0) + step, t=t, norms=norms, norm=norms.norm(), limit=one, scale=one, refused=zero,
        partial_gradient=partial_gradient, average=average,
    )  # fmt: skip
    return finished(*pieces)


@pytest.mark.parametrize("step", [0, 1, FULL_READ_INTERVAL - 1, FULL_READ_INTERVAL])
def test_weights_are_read_every_so_often_and_the_rest_at_every_step(step: int) -> None:
    readings = take_step(Monitors(monitored_network(), noise_binning_of_table(LOG_SNR)), step, t=torch.arange(4))
    assert readings.keys() >= EVERY_STEP | {"loss/whitened"}
    assert (readings.keys() & DEEP == DEEP) == (step % FULL_READ_INTERVAL == 0)
    assert "ema/distance" not in readings
    assert readings["loss/mean"] == 1.5 + step


def test_a_piece_of_the_gradient_is_not_taken_for_all_of_it() -> None:
    monitors = Monitors(monitored_network(), noise_binning_of_table(LOG_SNR), is_sharded=True)
    assert take_step(monitors, 0).keys() & DEEP == DEEP - NUMBERS


def test_the_distance_of_an_ema_needs_one() -> None:
    model = monitored_network()
    readings = take_step(
        Monitors(model, noise_binning_of_table(LOG_SNR)), 0, average=[p.detach().clone() for p in model.parameters()]
    )
    assert readings["ema/distance"] == 0


@pytest.mark.parametrize(("log_snr", "t"), [(None, torch.arange(4)), (LOG_SNR, None)])
def test_without_a_schedule_or_timesteps_there_is_only_the_mean_loss(
    log_snr: np.ndarray | None, t: torch.Tensor | None
) -> None:
    readings = take_step(
        Monitors(monitored_network(), None if log_snr is None else noise_binning_of_table(log_snr)), 1, t=t
    )
    assert {name for name in readings if name.startswith("loss/")} == {"loss/mean", "loss/smooth", "loss/deviation"}


def test_the_noise_scale_needs_the_gradient_of_a_part_of_the_batch() -> None:
    monitors = Monitors(monitored_network(), None)
    assert "gradient/noise_scale" not in take_step(monitors, 1)
    norm = torch.stack([gradient.norm() for gradient in random_gradients(monitored_network(), seed=2)]).norm()
    partial_gradient = PartialGradient(norm * 1.5, 4, 16)
    squares = [float(norm * 1.5) ** 2, float(norm) ** 2]
    signal, noise = (16 * squares[1] - 4 * squares[0]) / 12, (squares[0] - squares[1]) / (1 / 4 - 1 / 16)
    assert take_step(monitors, 2, partial_gradient=partial_gradient)["gradient/noise_scale"] == pytest.approx(
        noise / signal, rel=1e-5
    )


def test_what_is_remembered_can_be_put_back() -> None:
    first, second, t = (
        Monitors(monitored_network(), noise_binning_of_table(LOG_SNR)),
        Monitors(monitored_network(), noise_binning_of_table(LOG_SNR)),
        torch.arange(4),
    )
    for step in range(1, 5):
        take_step(first, step, t=t)
    second.restore(first.state())
    assert take_step(second, 5, t=t) == take_step(first, 5, t=t)
    assert take_step(Monitors(monitored_network(), noise_binning_of_table(LOG_SNR)), 5, t=t) != take_step(
        first, 5, t=t
    ), "the control"
