"""Every reading equals what a plain loop over the numbers would give."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from safelight.monitors.gradients import GradientMonitor
from safelight.monitors.histograms import weight_histograms
from safelight.monitors.loss import BINS, LEVELS, WINDOW, LossMonitor
from safelight.monitors.modules import MOST, find_parts, trained
from safelight.monitors.reading_buffer import PendingReading, ReadingBuffer
from safelight.monitors.updates import UpdateMonitor

LOG_SNR = np.linspace(8, -8, 1000)


class Kept:
    """A record in memory."""

    def __init__(self) -> None:
        self.readings: list[tuple[int, dict[str, float]]] = []

    def add(self, step: int, numbers: dict[str, float]) -> None:
        self.readings.append((step, dict(numbers)))


def told(piece: PendingReading) -> dict[str, float]:
    pool = ReadingBuffer(Kept())
    pool.add(0, [piece], {})
    return pool.flush()[0]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict({"first": nn.Linear(3, 5), "blocks": nn.ModuleList([nn.Linear(5, 5), nn.Linear(5, 2)])})


def with_gradients(model: nn.Module, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(p.shape, generator=generator) for p in model.parameters()]


def whole(norms: np.ndarray) -> float:
    return float(np.linalg.norm(norms))


# Parts


def names_of(parameters: list[str]) -> tuple[str, ...]:
    return find_parts([(name, torch.zeros(1)) for name in parameters]).names


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        (["conv_in.weight", "conv_in.bias", "down_blocks.0.a.weight", "down_blocks.1.a.weight"],
         ("conv_in", "down_blocks.0", "down_blocks.1")),
        (["module.unet.a.weight", "module.unet.b.weight"], ("a", "b")),
        (["weight"], ("weight",)),
        (["0.weight", "0.bias", "2.weight"], ("0", "2")),
        ([], ()),
    ],
)  # fmt: skip
def test_parts_are_the_blocks_of_a_network(parameters: list[str], names: tuple[str, ...]) -> None:
    assert names_of(parameters) == names


def test_many_parts_are_put_together() -> None:
    names = names_of([f"layer{number}.weight" for number in range(200)])
    assert len(names) <= MOST
    assert names[0] == "layer0 …"


# Pool


def test_every_step_is_finished_in_order_with_its_own_numbers() -> None:
    record = Kept()
    pool, order = ReadingBuffer(record), []

    def finish(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
        order.append(float(a[0]))
        return {"a": float(a[0]), "b": float(b.sum())}

    for step in range(5):
        pool.add(step, [PendingReading((torch.tensor([step, math.nan]), torch.ones(2, 2)), finish)], {"lr": 0.5})
    assert order == []
    assert pool.flush()[3] == {"a": 3, "b": 4, "lr": 0.5}
    assert order == [0, 1, 2, 3, 4]
    assert [step for step, _ in record.readings] == list(range(5))
    assert pool.flush() == []


def test_a_device_is_asked_once_per_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of another device are put together there and copied once; told by a stand-in for such a device."""
    copies = []
    cpu = Tensor.cpu
    monkeypatch.setattr(Tensor, "cpu", lambda tensor: (copies.append(tensor.numel()), cpu(tensor))[1])
    monkeypatch.setattr(Tensor, "device", torch.device("cuda"), raising=False)
    pool = ReadingBuffer(Kept())
    for step in range(4):
        pool.add(
            step,
            [PendingReading((torch.full((2, 3), float(step)), torch.tensor([7])), lambda a, b: {"a": a.sum() + b[0]})],
            {},
        )
    assert [reading["a"] for reading in pool.flush()] == [7, 13, 19, 25]
    assert copies == [28]


# Loss


def draws(steps: int, batch: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Losses that depend on the timestep as those of diffusion do, and a little on chance."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(steps):
        t = rng.integers(0, 1000, batch)
        loss = np.exp(-4 * t / 1000) * rng.gamma(20, 1 / 20, batch)
        found.append((loss.astype(np.float32), t))
    return found


def test_whitening_takes_the_draw_of_timesteps_out() -> None:
    monitor, raw, white = LossMonitor(LOG_SNR), [], []
    for step, (loss, t) in enumerate(draws(600, 32)):
        reading = monitor.look(step, loss, t)
        raw.append(reading["loss/mean"])
        white.append(reading["loss/whitened"])
        assert raw[-1] == pytest.approx(float(loss.mean()))
    late = slice(300, None)
    noise = [np.std(series[late]) / np.mean(series[late]) for series in (raw, white)]
    assert np.mean(white[late]) == pytest.approx(1, abs=0.02)
    assert noise[1] < noise[0] / 3


def test_whitening_shows_news() -> None:
    monitor, white = LossMonitor(LOG_SNR), []
    for step, (loss, t) in enumerate(draws(600, 32)):
        white.append(monitor.look(step, loss * (1.3 if step >= 500 else 1), t)["loss/whitened"])
    assert np.mean(white[500:510]) > 1.2
    assert abs(np.mean(white[490:500]) - 1) < 0.05


def test_a_loss_that_is_not_finite_shows_and_is_not_remembered() -> None:
    monitor = LossMonitor(LOG_SNR)
    healthy = draws(80, 32)
    for step, (loss, t) in enumerate(healthy[:40]):
        monitor.look(step, loss, t)
    sick = healthy[40][0].copy()
    sick[3] = math.nan
    reading = monitor.look(40, sick, healthy[40][1])
    assert math.isnan(reading["loss/mean"])
    assert math.isnan(reading["loss/whitened"])
    after = monitor.look(41, *healthy[41])
    assert abs(after["loss/whitened"] - 1) < 0.5
    assert all(value.isfinite().all() for value in monitor.state().values())


def test_levels_are_means_over_their_part_of_the_schedule() -> None:
    monitor = LossMonitor(LOG_SNR[::-1].copy())  # noise may also fall with the timestep
    seen = draws(WINDOW, 8)
    reading: dict[str, float] = {}
    for step, (loss, t) in enumerate(seen):
        reading = monitor.look(step, loss, t)
        assert len(reading) == 2 + LEVELS * (step == WINDOW - 1)
    loss, t = (np.concatenate([pair[place] for pair in seen]) for place in (0, 1))
    level = (999 - t) * LEVELS // 1000
    for number in range(LEVELS):
        assert reading[f"loss/level/{number:02d}"] == pytest.approx(loss[level == number].mean(), rel=1e-5)
    assert monitor.edges == sorted(monitor.edges, reverse=True)


def test_a_level_that_nobody_visited_has_no_reading() -> None:
    monitor = LossMonitor(LOG_SNR)
    reading: dict[str, float] = {}
    for step in range(WINDOW):
        reading = monitor.look(step, np.ones(2, np.float32), np.array([0, 999]))
    assert reading.keys() - {"loss/mean", "loss/whitened"} == {"loss/level/00", f"loss/level/{LEVELS - 1}"}


def test_what_is_remembered_can_be_put_back() -> None:
    seen = draws(100, 16)
    whole, first = LossMonitor(LOG_SNR), LossMonitor(LOG_SNR)
    expected = [whole.look(step, *pair) for step, pair in enumerate(seen)]
    for step in range(50):
        first.look(step, *seen[step])
    second = LossMonitor(LOG_SNR)
    second.restore(copy.deepcopy(first.state()))
    assert [second.look(step, *seen[step]) for step in range(50, 100)] == expected[50:]
    assert first.usual.shape == (BINS,)


# Gradients


def test_norms_by_part_are_those_of_their_parameters() -> None:
    model = network()
    parts, gradients = find_parts(trained(model)), with_gradients(model)
    norms = torch.stack([gradient.norm() for gradient in gradients]).numpy()
    monitor = GradientMonitor(parts)
    reading = monitor.look(norms, whole(norms), 1.0)
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
    free = monitor.look(norms, whole(norms), math.inf)
    assert (free["gradient/clipped"], free["gradient/kept"]) == (0, 1)


def test_gradients_that_are_not_finite_are_counted_where_they_are() -> None:
    model = network()
    gradients = with_gradients(model)
    gradients[2][0, 0] = math.nan
    gradients[3][1] = math.inf
    norms = torch.stack([gradient.norm() for gradient in gradients]).numpy()
    reading = GradientMonitor(find_parts(trained(model))).look(norms, whole(norms), 1.0)
    assert reading["gradient/nonfinite"] == 2
    assert math.isnan(reading["gradient/norm"])
    assert math.isfinite(reading["gradient/part/first"])
    assert not math.isfinite(reading["gradient/part/blocks.0"])


def test_the_share_of_zeros_is_counted_by_part() -> None:
    model = network()
    gradients = with_gradients(model)
    gradients[0].zero_()
    gradients[4][0] = 0
    reading = told(GradientMonitor(find_parts(trained(model))).look_deeper(gradients))
    assert reading["gradient/zero/first"] == pytest.approx(15 / 20)
    assert reading["gradient/zero/blocks.0"] == 0
    assert reading["gradient/zero/blocks.1"] == pytest.approx(5 / 12)


def test_the_noise_scale_is_that_of_known_gradients() -> None:
    """Samples with a mean gradient of length 2 and a variance of 0.5 in each of 400 directions: 200 / 4 = 50."""
    generator = torch.Generator().manual_seed(0)
    monitor = GradientMonitor(find_parts(trained(network())))
    mean = torch.full((400,), 2 / 20)
    scales = []
    for _ in range(800):
        samples = mean + torch.randn(32, 400, generator=generator) * 0.5**0.5
        small, big = samples[:8].mean(0).norm(), samples.mean(0).norm()
        scales.append(monitor.look_at_noise(float(small), float(big), 8, 32).get("gradient/noise_scale", math.nan))
    assert np.nanmedian(scales[200:]) == pytest.approx(50, rel=0.15)


# Updates


def test_the_ratio_of_an_update_to_its_weights() -> None:
    model = network()
    parameters = list(model.parameters())
    monitor = UpdateMonitor(find_parts(trained(model)), parameters)
    before = [p.detach().clone() for p in parameters]
    monitor.before()
    with torch.no_grad():
        for number, parameter in enumerate(parameters):
            parameter.add_(0.01 * (number + 1))
    average = [weight * 0.9 for weight in before]
    reading = told(monitor.after(average))
    moved = torch.cat([(p - b).flatten() for p, b in zip(parameters[:2], before[:2], strict=True)]).norm()
    weights = torch.cat([b.flatten() for b in before[:2]]).norm()
    assert reading["update/ratio/first"] == pytest.approx((moved / weights).item(), rel=1e-5)
    assert reading["weight/norm/first"] == pytest.approx(weights.item())
    apart = torch.cat([(p - a).flatten() for p, a in zip(parameters, average, strict=True)]).norm()
    length = torch.cat([b.flatten() for b in before]).norm()
    assert reading["ema/distance"] == pytest.approx((apart / length).item(), rel=1e-5)


# Histograms


def test_histograms_count_every_finite_weight_of_a_part() -> None:
    model = network()
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
