"""Loops that are odd but right, and loops that are wrong: the watch goes on, or says in words why not."""

from __future__ import annotations

import gc
import json
import math
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from loops import ALPHAS, Denoiser, batches
from torch import nn

import safelight
from safelight.errors import UsageError
from safelight.monitors.suite import FULL_READ_INTERVAL
from safelight.record.reading import read_signal


def run(
    folder: Path,
    model: nn.Module,
    *,
    loss_of: Callable[..., Any] | None = None,
    steps: int = 3,
    optimizer: torch.optim.Optimizer | None = None,
    **how: Any,
) -> list[str]:
    """A loop under watch; what the watch said of itself."""
    said: list[str] = []
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    with safelight.watch(model, optimizer, run=folder, say=said.append, **how) as watch:
        for x, noise, t in batches(steps):
            kind = next(model.parameters()).dtype
            predicted = model(x.to(kind), t)
            noise = noise.to(kind)
            loss = nn.functional.mse_loss(predicted, noise)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            told = loss_of(loss, predicted, noise, t) if loss_of is not None else {"loss": loss}
            watch.step(**told)
    return of_itself(said)


def of_itself(said: list[str]) -> list[str]:
    """Without the findings, which toy loops of three steps have for good reasons."""
    return [words for words in said if not re.match(r"(Error|Warning) [A-Z]{3}\d{3} |Safelight: ", words)]


def readings(folder: Path, name: str) -> list[float]:
    return [value for _, value in read_signal(folder / "record.sqlite", name)]


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time, self.out = nn.Embedding(100, 64, sparse=True), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.out(x + self.time(t))


@pytest.mark.parametrize(
    "model", [Denoiser().bfloat16(), Sparse(), Denoiser().double()], ids=["bf16", "sparse", "fp64"]
)
def test_odd_weights_are_watched_like_others(tmp_path: Path, model: nn.Module) -> None:
    assert run(tmp_path / "run", model, steps=FULL_READ_INTERVAL + 1) == []
    for name in ("loss/mean", "gradient/norm", "gradient/part/time"):
        values = readings(tmp_path / "run", name)
        assert len(values) == FULL_READ_INTERVAL + 1, name
        assert all(math.isfinite(value) for value in values), name
    assert len(readings(tmp_path / "run", "update/ratio/out")) == 2
    if isinstance(model, Sparse):
        assert 0.8 < readings(tmp_path / "run", "gradient/zero/time")[0] < 1


def test_the_loss_is_what_the_loop_says_it_is(tmp_path: Path) -> None:
    """Prediction and target tell it by level only: a weighted loss, or another norm, stays what it is."""

    def weighted(loss: Any, pred: Any, target: Any, t: Any) -> dict[str, Any]:
        return {"loss": 7 * loss, "t": t, "pred": pred, "target": target}

    told = run(tmp_path / "run", Denoiser(), schedule=ALPHAS, steps=FULL_READ_INTERVAL, loss_of=weighted)
    assert told == []
    mean, levels = readings(tmp_path / "run", "loss/mean"), readings(tmp_path / "run", "loss/level/07")
    assert mean[0] > 5
    assert 0.5 < levels[0] < 2


def test_timesteps_that_the_schedule_does_not_have_are_counted(tmp_path: Path) -> None:
    """Numbered from 1, the last one lies outside; below 0 it would be another level."""

    def shifted(loss: Any, pred: Any, target: Any, t: torch.Tensor) -> dict[str, Any]:
        outside = t.clone()
        outside[0], outside[1] = 100, -1
        return {"loss": loss, "t": outside, "pred": pred, "target": target}

    assert run(tmp_path / "run", Denoiser(), schedule=ALPHAS, loss_of=shifted) == []
    assert readings(tmp_path / "run", "loss/outside") == pytest.approx([2 / 12] * 3)
    assert len(readings(tmp_path / "run", "loss/mean")) == 3


def test_flat_predictions_are_one_number_each(tmp_path: Path) -> None:
    flat = lambda loss, pred, target, t: {"loss": loss, "pred": pred[:, 0], "target": target[:, 0]}  # noqa: E731
    assert run(tmp_path / "run", Denoiser(), loss_of=flat) == []
    assert len(readings(tmp_path / "run", "loss/mean")) == 3


def test_updates_that_a_fused_optimizer_skips_are_counted(tmp_path: Path) -> None:
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    with safelight.watch(model, optimizer, run=tmp_path / "run", scaler=scaler) as watch:
        for number, (x, noise, t) in enumerate(batches(4)):
            loss = (model(x, t) - noise).square().mean()
            scaler.scale(loss * (math.inf if number == 2 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            watch.step(loss)
    assert readings(tmp_path / "run", "update/refused") == [0, 0, 1, 0]


def test_an_average_of_all_parameters_is_matched_with_those_that_train(tmp_path: Path) -> None:
    from diffusers.training_utils import EMAModel

    model = Denoiser()
    model.time.requires_grad_(False)
    assert run(tmp_path / "run", model, ema=EMAModel(model.parameters())) == []
    assert len(readings(tmp_path / "run", "ema/distance")) == 1
    said = run(tmp_path / "other", Denoiser(), ema=nn.Linear(2, 2))
    assert len(said) == 1
    assert "could not be matched" in said[0]


def test_unfrozen_parameters_are_told_of(tmp_path: Path) -> None:
    model = Denoiser()
    model.time.requires_grad_(False)
    said: list[str] = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with safelight.watch(model, optimizer, run=tmp_path / "run", say=said.append) as watch:
        model.time.requires_grad_(True)
        x, noise, t = batches(1)[0]
        loss = (model(x, t) - noise).square().mean()
        loss.backward()
        optimizer.step()
        watch.step(loss)
    [words, finding, _] = said
    assert "unfrozen" in words
    assert "MOD011 model.frozen" in finding, "it was, when the watch began"


def test_an_optimizer_that_never_steps_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safelight.watching.loop.LONGEST_STEP", 10)
    model, said = Denoiser(), list[str]()
    with safelight.watch(
        model, torch.optim.SGD(model.parameters(), lr=0.1), run=tmp_path / "run", say=said.append
    ) as watch:
        for _ in range(50):
            watch.step(torch.tensor(1.0))
        assert len(watch._micro_batches) <= 10
    [words, finding, _] = said
    assert "Is it the one that trains?" in words
    assert finding.startswith("Error OPT")


class DeepSpeedEngine(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def test_deepspeed_is_refused_in_words(tmp_path: Path) -> None:
    partitioned = Denoiser()
    partitioned.body.weight.ds_id = 1  # type: ignore[attr-defined]  # as ZeRO marks what it partitions
    for model in (DeepSpeedEngine(Denoiser()), partitioned):
        with pytest.raises(UsageError, match="DeepSpeed"):
            safelight.watch(model, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class FullyShardedDataParallel(DeepSpeedEngine):
    """As FSDP1 names itself."""


def test_the_check_of_a_model_needs_all_of_it() -> None:
    with pytest.raises(UsageError, match="Check the model before it is sharded"):
        safelight.check(FullyShardedDataParallel(Denoiser()), ALPHAS, torch.randn(4, 64))


def test_a_watch_keeps_no_model_alive(tmp_path: Path) -> None:
    model = Denoiser()
    watch = safelight.watch(model, run=tmp_path / "run")
    alive = weakref.ref(model)
    del watch, model
    gc.collect()
    assert alive() is None


ENDS = {
    "watch.close()": ("finished", 0),
    "pass": ("ended", 0),
    "raise ArithmeticError('broke')": ("crashed", 1),
    "import os; pid = os.fork(); (sys.exit(0) if pid == 0 else os.waitpid(pid, 0)); watch.close()": ("finished", 0),
}


@pytest.mark.parametrize("end", ENDS)
def test_how_a_loop_ended_is_told(tmp_path: Path, end: str) -> None:
    code = f"""
import sys, torch, safelight
model = torch.nn.Linear(2, 2)
watch = safelight.watch(model, run={str(tmp_path / "run")!r})
watch.step(torch.tensor(1.0))
{end}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    status, returned = ENDS[end]
    assert done.returncode == returned, done.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == status
    assert [step for step, _ in read_signal(tmp_path / "run" / "record.sqlite", "loss/mean")] == [0]
