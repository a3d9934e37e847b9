"""A watch that is passed little sees as much, and what it is passed is compared with what it sees."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import safelight
from safelight.record.history import open_history
from tests.capturing import loops


def train(path: Path, *names: str, wrong: str = "", steps: int = 6) -> tuple[list[str], nn.Module]:
    """Passes what is named; `wrong` of it is something else."""
    said: list[str] = []
    torch.manual_seed(0)
    model = loops.Net()
    optimizer = loops.optimizer_of(model)
    watch = safelight.watch(model, optimizer, run=path, say=said.append)
    for images, _ in loops.batches(steps):
        x0 = images * 2 - 1
        x_t, t, noise, _ = loops.noised(x0)
        pred = model(x_t, t)
        loss = torch.nn.functional.mse_loss(pred, noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        given: dict[str, Any] = {
            "loss": loss,
            "t": t,
            "x0": x0,
            "noise": noise,
            "x_t": x_t,
            "target": noise,
            "pred": pred,
        }
        if wrong:
            given[wrong] = images**2 if wrong == "x0" else torch.roll(given[wrong], 1, 0)
        watch.step(**{name: given[name] for name in names})
    is_left = bool(_get_current_function_mode_stack())
    watch.close()
    assert _get_current_function_mode_stack() == []
    said.append("left" if is_left else "ended")
    return said, model


def signals(path: Path) -> set[str]:
    with open_history(path / "record.sqlite") as history:
        return {name for name in history.signals() if name.startswith("check/")}


def test_a_step_without_anything_sees_what_one_with_everything_does(tmp_path: Path) -> None:
    everything = "loss", "t", "x0", "noise", "x_t", "target", "pred"
    said, model = train(tmp_path / "nothing")
    expected, other = train(tmp_path / "all", *everything)
    assert all(map(torch.equal, model.parameters(), other.parameters()))
    assert signals(tmp_path / "all") <= signals(tmp_path / "nothing")
    assert (said[-1], expected[-1]) == ("left", "ended")  # it looks on only where something is not passed
    assert not [line for line in said if "Error" in line or "step(" in line]


@pytest.mark.parametrize("name", ["x0", "noise", "x_t", "t", "target"])
def test_what_is_passed_and_is_another_is_reported_once(name: str, tmp_path: Path) -> None:
    said, _ = train(tmp_path / "run", "loss", name, wrong=name)
    assert len([line for line in said if line.startswith(f"Safelight's watch: step({name}=…)")]) == 1
    with open_history(tmp_path / "run" / "record.sqlite") as history:
        assert len(history.events("passed_otherwise")) == 1


def test_no_loss_at_all_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    model = loops.Net()
    watch = safelight.watch(model, run=tmp_path / "run", say=said.append)
    watch.step()
    watch.close()
    assert "no loss was passed, and none was seen" in said[0]


def test_an_abandoned_watch_leaves_nothing_behind(tmp_path: Path) -> None:
    model = loops.Net()
    watch = safelight.watch(model, loops.optimizer_of(model), run=tmp_path / "run", say=lambda _: None)
    held: weakref.ref[Any] = weakref.ref(watch)
    del watch, model
    gc.collect()
    assert held() is None
    assert _get_current_function_mode_stack() == []
