"""The monitors inside the training step: they see the truth, and the weights do not notice them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny import parts_of, tiny
from torch.utils._python_dispatch import TorchDispatchMode

from safelight.monitors.suite import FULL_READ_INTERVAL
from safelight.observing.observer import Observer
from safelight.record.reading import read_signal
from safelight.start import train
from safelight.terminal import Terminal
from safelight.training.build import Setup

pytestmark = pytest.mark.usefixtures("no_report")


def weights(parts: Setup) -> list[bytes]:
    state = parts.state
    tensors = [*state.model.state_dict().values(), *state.ema.shadows["main"]]
    tensors += [value for entry in state.optimizer.state.values() for value in entry.values()]
    return [tensor.detach().numpy().tobytes() for tensor in tensors]


@pytest.mark.parametrize("settings", [{}, {"train.accumulate": 2}, {"train.precision": "bf16"}])
def test_a_watched_run_has_the_bytes_of_an_unwatched_one(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safelight.monitors.suite.FULL_READ_INTERVAL", 8)
    watched, alone = parts_of(**settings), parts_of(**settings)
    for step in range(8 + 2):
        seen = watched.stepper.step(
            watched.loader.load(step), step, observer=Observer(Readings(), watched.state.monitors)
        )
        unseen = alone.stepper.step(alone.loader.load(step), step)
        assert seen.readings
        assert not unseen.readings
    assert weights(watched) == weights(alone)


class Readings(dict[str, float]):
    def add(self, step: int, numbers: dict[str, float]) -> None:
        self.update(numbers)


def readings_of(parts: Setup, step: int = 0) -> Readings:
    record = Readings()
    observer = Observer(record, parts.state.monitors)
    view = parts.stepper.step(parts.loader.load(step), step, observer=observer)
    observer.add(step, view.readings, {})
    observer.read()
    return record


def test_accumulation_does_not_show_in_the_readings() -> None:
    whole, pieces = readings_of(parts_of()), readings_of(parts_of(**{"train.accumulate": 4}))
    assert pieces.pop("gradient/noise_scale", 1.0) > 0
    assert whole.keys() == pieces.keys()
    for name, number in whole.items():
        assert pieces[name] == pytest.approx(number, rel=2e-4, abs=1e-6), name


def test_the_loss_scale_does_not_show_in_the_gradients() -> None:
    """Gradients are read after unscaling: fp16 with two scales tells what fp32 does, as far as fp16 can."""
    exact = readings_of(parts_of())
    for scale in (64.0, 1024.0):
        parts = parts_of(**{"train.precision": "fp16", "train.accumulate": 2})
        parts.state.loss_scale.value.fill_(scale)
        readings = readings_of(parts)
        assert readings["precision/scale"] == scale
        assert readings["gradient/norm"] == pytest.approx(exact["gradient/norm"], rel=0.02)
        assert readings["gradient/part/conv_out"] == pytest.approx(exact["gradient/part/conv_out"], rel=0.02)


class Waits(TorchDispatchMode):
    """Counts what would make the host wait for a device: reading one number, or copying to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, kinds: Any, arguments: Any = (), named: Any = None) -> Any:
        name = str(function)
        if "_local_scalar_dense" in name or "is_nonzero" in name or name.startswith("aten.nonzero"):
            self.seen.append(name)
        return function(*arguments, **(named or {}))


@contextmanager
def waits() -> Iterator[list[str]]:
    with Waits() as mode:
        yield mode.seen


@pytest.mark.parametrize("step", [0, 1, FULL_READ_INTERVAL - 1])
def test_no_monitor_waits_for_the_device(step: int) -> None:
    parts = parts_of(**{"train.accumulate": 2})
    observer = Observer(Readings(), parts.state.monitors)
    parts.stepper.step(parts.loader.load(0), 0, observer=observer)
    inputs = parts.loader.load(step)
    with waits() as seen:
        view = parts.stepper.step(inputs, step, observer=observer)
        observer.add(step, view.readings, {})
    assert seen == []
    with waits() as seen:  # the control: a tutorial's loop is found out
        [float(parameter.detach().norm()) for parameter in parts.state.model.parameters()]
    assert len(seen) > 5


def test_a_run_records_what_was_promised(tmp_path: Path) -> None:
    config = tiny(**{"train.steps": FULL_READ_INTERVAL + 2, "data.held_out": 0.2, "train.accumulate": 2})
    train(replace(config), run=tmp_path / "run", terminal=Terminal(quiet=True))
    path = tmp_path / "run" / "record.sqlite"
    for name in ("loss/mean", "loss/whitened", "gradient/norm", "gradient/kept", "optimizer/lr", "ema/decay"):
        assert [step for step, _ in read_signal(path, name)] == list(range(FULL_READ_INTERVAL + 2)), name
    for name in ("gradient/zero/conv_in", "update/ratio/conv_out", "weight/norm/mid_block", "ema/distance"):
        assert [step for step, _ in read_signal(path, name)] == [0, FULL_READ_INTERVAL], name
    assert [step for step, _ in read_signal(path, "loss/level/07")] == [FULL_READ_INTERVAL - 1]
    held, probe = read_signal(path, "probe/held_ema"), read_signal(path, "probe/ema")
    gain, skill = read_signal(path, "probe/ema_gain"), read_signal(path, "skill/raw")
    assert [s for s, _ in held] == [s for s, _ in probe] == [s for s, _ in gain] == [s for s, _ in skill]
    assert read_signal(path, "system/memory")[0][1] > 1e7
