"""Other people's loops under watch: everything is seen, nothing is changed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loops import ALPHAS, Denoiser, batches, plain_loop
from torch import nn

import safelight
from safelight.errors import UsageError
from safelight.monitors.suite import FULL_READ_INTERVAL
from safelight.probes.forward_pass import Call
from safelight.record.reading import read_events, read_signal
from safelight.watching.foreign import is_compiled


def attach(path: Path, **settings: Any) -> Any:
    return lambda model, optimizer, average: safelight.watch(
        model, optimizer, run=path, ema=average, schedule=ALPHAS, prediction="epsilon", **settings
    )


@pytest.mark.parametrize("how", [{}, {"accumulate": 3}, {"fused": True}])
def test_weights_with_and_without_watch_are_the_same_bytes(tmp_path: Path, how: dict[str, Any]) -> None:
    _, alone = plain_loop(FULL_READ_INTERVAL + 2, **how)
    _, watched = plain_loop(FULL_READ_INTERVAL + 2, attach(tmp_path / "run"), **how)
    assert [p.numpy().tobytes() for p in alone] == [p.numpy().tobytes() for p in watched]


def test_a_watch_that_touched_something_would_be_found_out(tmp_path: Path) -> None:
    """The control: one random number drawn, and dropout gives other weights."""

    def meddle(model: nn.Module, optimizer: Any, average: Any) -> Any:
        torch.rand(1)
        return attach(tmp_path / "run")(model, optimizer, average)

    alone, watched = plain_loop(3)[1], plain_loop(3, meddle)[1]
    assert [p.numpy().tobytes() for p in alone] != [p.numpy().tobytes() for p in watched]


@pytest.mark.parametrize("accumulate", [1, 4])
def test_everything_is_in_the_record(tmp_path: Path, accumulate: int) -> None:
    plain_loop(FULL_READ_INTERVAL + 1, attach(tmp_path / "run"), accumulate=accumulate)
    path = tmp_path / "run" / "record.sqlite"
    for name in ("loss/mean", "loss/whitened", "gradient/norm", "gradient/part/body", "optimizer/lr"):
        readings = read_signal(path, name)
        assert [step for step, _ in readings] == list(range(FULL_READ_INTERVAL + 1)), name
        assert all(math.isfinite(value) for _, value in readings), name
    for name in ("update/ratio/out", "weight/norm/time", "gradient/zero/time", "ema/distance"):
        assert [step for step, _ in read_signal(path, name)] == [0, FULL_READ_INTERVAL], name
    assert len(read_signal(path, "loss/level/03")) == 1
    zero = dict(read_signal(path, "gradient/zero/time"))[0]
    assert 0.3 < zero < 1, "most rows of the embedding were not drawn"


def test_only_the_model_is_needed(tmp_path: Path) -> None:
    model = Denoiser()
    with safelight.watch(model, run=tmp_path / "run") as watch:
        for step in range(3):
            watch.step(torch.tensor(float(step)))
    assert not watch.findings
    assert [step for step, _ in read_signal(tmp_path / "run" / "record.sqlite", "speed/images")] == [0, 1, 2]


def test_a_nan_is_recorded_and_the_loop_goes_on(tmp_path: Path) -> None:
    model = Denoiser()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with safelight.watch(model, optimizer, run=tmp_path / "run") as watch:
        for step, (x, noise, t) in enumerate(batches(4)):
            loss = (model(x, t) - noise).square().mean() * (math.nan if step == 2 else 1)
            loss.backward()
            if step == 2:
                optimizer.zero_grad()
            optimizer.step()
            watch.step(loss)
            optimizer.zero_grad()
    losses = dict(read_signal(tmp_path / "run" / "record.sqlite", "loss/mean"))
    assert math.isnan(losses[2])
    assert math.isfinite(losses[3])


def test_a_fault_of_the_watch_is_told_and_ends_only_the_watch(tmp_path: Path) -> None:
    said: list[str] = []

    def sick(model: nn.Module, optimizer: Any, average: Any) -> Any:
        watch = attach(tmp_path / "run", say=said.append)(model, optimizer, average)
        watch._observer.read = lambda: 1 / 0
        return watch

    alone, watched = plain_loop(5)[1], plain_loop(5, sick)[1]
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))
    assert len(said) == 1
    assert "your training continues without it" in said[0]


def test_a_loop_is_carried_on_where_it_was(tmp_path: Path) -> None:
    plain_loop(6, attach(tmp_path / "run"))
    with pytest.raises(UsageError, match=r"already holds a record.*step=N"):
        plain_loop(2, attach(tmp_path / "run"))
    plain_loop(4, attach(tmp_path / "run", step=3))
    assert [step for step, _ in read_signal(tmp_path / "run" / "record.sqlite", "loss/mean")] == list(range(7))


# What loops are made of


def test_a_diffusers_loop_with_accelerate(tmp_path: Path) -> None:
    from accelerate import Accelerator
    from diffusers import DDPMScheduler, UNet2DModel

    def loop(watched: bool) -> list[bytes]:
        torch.manual_seed(0)
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        blocks = {"down_block_types": ("DownBlock2D",), "up_block_types": ("UpBlock2D",), "block_out_channels": (8,)}
        shape = {"sample_size": 8, "in_channels": 1, "out_channels": 1, "layers_per_block": 1, "norm_num_groups": 4}
        model = UNet2DModel(**shape, **blocks)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scheduler = DDPMScheduler(num_train_timesteps=100)
        model, optimizer = accelerator.prepare(model, optimizer)
        watch = safelight.watch(model, optimizer, run=tmp_path / "run", schedule=scheduler) if watched else None
        for x, noise, t in batches(12, 4):
            x, noise = x.view(4, 1, 8, 8), noise.view(4, 1, 8, 8)
            with accelerator.accumulate(model):
                predicted = model(scheduler.add_noise(x, noise, t), t).sample
                loss = nn.functional.mse_loss(predicted, noise)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if watch is not None:
                watch.step(loss, t=t, pred=predicted, target=noise)
        if watch is not None:
            watch.close()
        return [p.detach().numpy().tobytes() for p in model.parameters()]

    assert loop(watched=True) == loop(watched=False)
    assert [step for step, _ in read_signal(tmp_path / "run" / "record.sqlite", "loss/mean")] == list(range(6))


# Seen through hooks


def test_parameters_with_gradients_that_are_not_finite_are_named(tmp_path: Path) -> None:
    model = Denoiser()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with safelight.watch(model, optimizer, run=tmp_path / "run") as watch:
        for step, (x, noise, t) in enumerate(batches(3)):
            loss = (model(x, t) - noise).square().mean()
            loss.backward()
            if step == 1:
                assert model.body.bias.grad is not None
                model.body.bias.grad[3] = math.nan
            optimizer.step()
            optimizer.zero_grad()
            watch.step(loss)
            if step == 1:
                torch.nn.init.zeros_(model.body.bias)
    path = tmp_path / "run" / "record.sqlite"
    assert read_events(path, "nonfinite") == [(1, "nonfinite", {"parameters": ["body.bias"], "count": 1})]
    assert [value for _, value in read_signal(path, "gradient/nonfinite")] == [0, 1, 0]


def test_timesteps_are_seen_where_the_model_is_called(tmp_path: Path) -> None:
    """Also when samples are drawn between the forward pass and the step."""
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with safelight.watch(model, optimizer, run=tmp_path / "run", schedule=ALPHAS) as watch:
        for x, noise, t in batches(64):
            loss = (model(x, t) - noise).square().mean(1)
            loss.mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                model(x, torch.zeros_like(t))
            watch.step(loss)
    assert len(read_signal(tmp_path / "run" / "record.sqlite", "loss/level/00")) == 1
    assert len(read_signal(tmp_path / "run" / "record.sqlite", "loss/level/15")) == 1
    assert not model._forward_pre_hooks


@pytest.mark.parametrize(
    ("inputs", "named", "found"),
    [
        ((torch.zeros(3, 2), torch.tensor([1, 2, 3])), {}, [1, 2, 3]),
        ((torch.zeros(3, 2),), {"timestep": torch.tensor([4, 5, 6])}, [4, 5, 6]),
        ((), {"sample": torch.zeros(3, 2), "timestep": torch.tensor([4, 5, 6])}, [4, 5, 6]),
        ((torch.zeros(3, 2), torch.tensor([0.1, 0.2, 0.3])), {}, None),
        ((torch.zeros(3, 2), torch.tensor(5)), {}, None),
        ((torch.zeros(3, 2), 5), {}, None),
        ((), {}, None),
    ],
)
def test_timesteps_among_what_a_model_is_called_with(inputs: Any, named: Any, found: list[int] | None) -> None:
    t = Call(inputs, named).t
    assert (None if t is None or t.is_floating_point() else t.tolist()) == found


def test_a_compiled_model_is_not_hooked(tmp_path: Path) -> None:
    model = Denoiser()
    with safelight.watch(torch.compile(model, backend="eager"), run=tmp_path / "run"):
        assert not model._forward_pre_hooks
    assert is_compiled(torch.compile(model, backend="eager"))
    assert not is_compiled(model)


def test_only_the_first_process_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with safelight.watch(Denoiser(), run=tmp_path / "run") as watch:
        watch.step(torch.tensor(1.0), t=torch.tensor([1]))
    assert not watch.findings
    assert not (tmp_path / "run").exists()


@pytest.mark.timeout(1800)  # seconds alone, and many times that beside others
def test_ranks_of_a_wrapped_model(tmp_path: Path) -> None:
    """Two processes, DDP: the gradients recorded are those both train with, and the weights are as without."""
    script = Path(__file__).parents[1] / "support" / "several.py"
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    path = tmp_path / "run" / "record.sqlite"
    assert [step for step, _ in read_signal(path, "loss/mean")] == list(range(6))
    expected = json.loads((tmp_path / "norms.json").read_text())
    assert np.allclose([value for _, value in read_signal(path, "gradient/norm")], expected, rtol=1e-5)
    weights = {path.read_bytes() for path in tmp_path.glob("*.weights")}
    assert len(list(tmp_path.glob("*.weights"))) == 4  # two ranks, with and without
    assert len(weights) == 1


def test_numbers_of_ones_own_lie_beside_ours(tmp_path: Path) -> None:
    with safelight.watch(Denoiser(), run=tmp_path / "run") as watch:
        for step in range(3):
            watch.log({"mine/accuracy": step / 2})
            watch.step(torch.tensor(1.0))
        watch.log({"mine/late": 7.0}, step=1)
    path = tmp_path / "run" / "record.sqlite"
    assert read_signal(path, "mine/accuracy") == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert read_signal(path, "mine/late") == [(1, 7.0)]


# Lightning
