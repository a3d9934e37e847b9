"""Gradients, closures and skipped updates are seen through hooks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loops import ALPHAS, Denoiser, batches, plain_loop
from torch import Tensor, nn

import safelight
from safelight.comparison import compare
from safelight.record.reading import read_signal


def attach(path: Path, **settings: Any) -> Any:
    return lambda model, optimizer, average: safelight.watch(
        model, optimizer, run=path, ema=average, schedule=ALPHAS, prediction="epsilon", **settings
    )


def test_the_norm_is_what_the_optimizer_saw(tmp_path: Path) -> None:
    seen: list[float] = []

    def look(model: nn.Module, optimizer: Any, average: Any) -> Any:
        optimizer.register_step_pre_hook(
            lambda *_: seen.append(math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters())))
        )
        return attach(tmp_path / "run")(model, optimizer, average)

    plain_loop(5, look)
    told = [value for _, value in read_signal(tmp_path / "run" / "record.sqlite", "gradient/norm")]
    assert np.allclose(told, seen, rtol=1e-5)


def test_a_loop_of_known_length_has_a_time_left(tmp_path: Path) -> None:
    plain_loop(20, attach(tmp_path / "run", steps=40))
    plain_loop(20, attach(tmp_path / "endless"))
    left = [read_signal(tmp_path / name / "record.sqlite", "speed/left") for name in ("run", "endless")]
    assert [[step for step, _ in each] for each in left] == [[15], []]
    assert left[0][0][1] > 0
    assert [each["steps"] for each in compare((tmp_path / "run", tmp_path / "endless"), ())["runs"]] == [40, None]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_updates_that_a_guard_refuses_are_counted_and_named(tmp_path: Path, accumulate: int) -> None:
    torch.manual_seed(0)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    guard = safelight.FiniteGuard(model, optimizer, say=lambda words: None)
    with safelight.watch(model, optimizer, run=tmp_path / "run", say=lambda words: None) as watch:
        for number, (x, noise, t) in enumerate(batches(8 * accumulate)):
            x = x * math.nan if number // accumulate in (3, 5) else x
            loss = (model(x, t) - noise).square().mean()
            loss.backward()
            if (number + 1) % accumulate == 0:
                guard.step(loss)
                optimizer.zero_grad()
            watch.step(loss)
    path = tmp_path / "run" / "record.sqlite"
    assert [step for step, _ in read_signal(path, "loss/mean")] == list(range(8))
    assert [step for step, refused in read_signal(path, "update/refused") if refused] == [3, 5]
    found = {each.code: each for each in watch.findings}
    assert "ACC002" not in found
    assert found["LOS001"].summary.startswith(
        "2 updates had a loss or a gradient that was not finite, and were refused"
    )
    assert "such value appeared in the input of the model." in found["LOS001"].summary


@pytest.mark.parametrize("prepared", [False, True])
def test_updates_that_a_scaler_skips_are_counted(tmp_path: Path, prepared: bool) -> None:
    """The optimizer is not called then: without a look at the scaler, two steps would pass for one."""
    from accelerate import Accelerator

    model = Denoiser()
    optimizer = wrapped = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    if prepared:
        wrapped = Accelerator(cpu=True).prepare(optimizer)
        wrapped.scaler = scaler
    with safelight.watch(model, wrapped, run=tmp_path / "run", scaler=None if prepared else scaler) as watch:
        for number, (x, noise, t) in enumerate(batches(6)):
            loss = (model(x, t) - noise).square().mean()
            scaler.scale(loss * (math.inf if number == 2 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            watch.step(loss)
    path = tmp_path / "run" / "record.sqlite"
    assert [step for step, _ in read_signal(path, "loss/mean")] == list(range(6))
    assert [value for _, value in read_signal(path, "update/refused")] == [0, 0, 1, 0, 0, 0]
    assert [value for _, value in read_signal(path, "precision/scale")] == [64, 64, 64, 32, 32, 32]
    assert [step for step, _ in read_signal(path, "gradient/norm")] == [0, 1, 3, 4, 5]
    assert "step" not in vars(scaler), "what was hung on the scaler came off"


def closure_loop(run: Path | None, *, named: bool) -> list[bytes]:
    torch.manual_seed(0)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watch = None if run is None else safelight.watch(model, optimizer, run=run)
    for x, noise, t in batches(4):

        def closure(x: Tensor = x, noise: Tensor = noise, t: Tensor = t) -> Tensor:
            optimizer.zero_grad()
            loss = (model(x, t) - noise).square().mean()
            loss.backward()
            return loss

        loss = optimizer.step(closure=closure) if named else optimizer.step(closure)
        assert loss is not None
        if watch is not None:
            watch.step(loss)
    if watch is not None:
        watch.close()
    return [p.detach().numpy().tobytes() for p in model.parameters()]


@pytest.mark.parametrize("named", [False, True])
def test_gradients_of_a_closure_are_seen_after_it(tmp_path: Path, named: bool) -> None:
    """Before the closure there are none, or those of the step before."""
    assert closure_loop(tmp_path / "run", named=named) == closure_loop(None, named=named)
    norms = [value for _, value in read_signal(tmp_path / "run" / "record.sqlite", "gradient/norm")]
    torch.manual_seed(0)
    model = Denoiser()
    x, noise, t = batches(1)[0]
    (model(x, t) - noise).square().mean().backward()
    first = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]))
    assert norms[0] == pytest.approx(float(first), rel=1e-5)
    assert len(norms) == 4


def test_two_watches_on_one_scaler_come_off_in_any_order(tmp_path: Path) -> None:
    models = [Denoiser(), Denoiser()]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    scaler = torch.amp.GradScaler("cpu")
    watches = [
        safelight.watch(model, optimizer, run=tmp_path / str(number), scaler=scaler)
        for number, (model, optimizer) in enumerate(zip(models, optimizers, strict=True))
    ]
    for watch in watches:
        watch.close()
    for number in range(2):
        assert json.loads((tmp_path / str(number) / "run.json").read_text())["status"] == "finished"
    loss = models[0](torch.ones(2, 64), torch.tensor([1, 2])).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizers[0])  # still works
