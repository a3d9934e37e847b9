"""Checkpoints of a plain loop: everything comes back, nothing is lost by a kill, and what is damaged is told."""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as schedulers

from safelight.checkpoints import folder as retention
from safelight.checkpoints import manifest, saves, writer
from safelight.checkpoints.coordinator import SaveCoordinator
from safelight.checkpoints.saves import Checkpoints
from safelight.checkpoints.snapshot import prepare
from safelight.errors import CheckpointError, RunBusy, UsageError
from safelight.training.clipping import AdaptiveClipper
from safelight.training.ema import EMA
from torture.disks import QuickDisk
from torture.plain_loop import OTHER_STATE, Blow, torment, undisturbed

QUICK = QuickDisk()


def checkpoints(folder: Path, **given: Any) -> Checkpoints:
    return Checkpoints(folder / "ckpt", **({"say": pytest.fail, "disk": QUICK} | given))


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def walk(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, *more: Any) -> None:
    for _ in range(steps):
        model(torch.randn(5, 3)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        for each in more:
            each.step()


def bytes_of(model: nn.Module) -> list[bytes]:
    return [value.detach().numpy().tobytes() for value in model.state_dict().values()]


Make = Callable[[Any], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True),
    "adamw, fused, groups": lambda p: torch.optim.AdamW(
        [{"params": (all := list(p))[:2], "weight_decay": 0.1}, {"params": all[2:]}], lr=1e-2, fused=True
    ),
    "sgd, momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
    "sgd, no state": lambda p: torch.optim.SGD(p, lr=1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-3),
}
SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "lambda": lambda o: schedulers.LambdaLR(o, lambda step: 1 / (1 + step)),
    "cosine": lambda o: schedulers.CosineAnnealingLR(o, 9),
    "one cycle": lambda o: schedulers.OneCycleLR(o, 1e-2, total_steps=50),
    "multi step": lambda o: schedulers.MultiStepLR(o, [2, 5]),
    "sequential": lambda o: schedulers.SequentialLR(
        o, [schedulers.LinearLR(o, 0.1, 1.0, 4), schedulers.CosineAnnealingLR(o, 9)], [4]
    ),
}


@pytest.mark.parametrize(
    ("kind", "schedule"), [*((kind, "lambda") for kind in OPTIMIZERS), *(("adam", name) for name in SCHEDULERS)]
)
def test_a_loop_continues_to_the_bit(tmp_path: Path, kind: str, schedule: str) -> None:
    model, resumed = net(), net(5)
    optimizer, other = OPTIMIZERS[kind](model.parameters()), OPTIMIZERS[kind](resumed.parameters())
    scheduler, next_scheduler = SCHEDULERS[schedule](optimizer), SCHEDULERS[schedule](other)
    walk(model, optimizer, 3, scheduler)
    path = checkpoints(tmp_path).save(3, model=model, optimizer=optimizer, scheduler=scheduler)
    assert path == tmp_path / "ckpt" / "step_00000003"
    walk(model, optimizer, 6, scheduler)
    assert checkpoints(tmp_path).load(model=resumed, optimizer=other, scheduler=next_scheduler) == 3
    walk(resumed, other, 6, next_scheduler)
    assert bytes_of(resumed) == bytes_of(model)
    assert next_scheduler.get_last_lr() == scheduler.get_last_lr()


class Loader:
    """A loader that knows its place, as torchdata's does."""

    def __init__(self) -> None:
        self.place = 0

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


def test_everything_that_has_a_state_comes_back(tmp_path: Path) -> None:
    def parts() -> dict[str, Any]:
        model = net()
        return {
            "model": model,
            "ema": EMA(model),
            "clip": AdaptiveClipper(model.parameters()),
            "scaler": torch.amp.GradScaler("cpu", init_scale=8.0),
            "noise": torch.Generator().manual_seed(3),
            "order": np.random.default_rng(3),
            "names": random.Random(3),
            "loader": Loader(),
        }

    first, second = parts(), parts()
    first["model"](torch.randn(5, 3)).sum().backward()
    first["clip"]()
    first["ema"].update()
    first["scaler"].scale(torch.ones(1))
    first["scaler"].update(4.0)
    first["loader"].place = 7
    for name in ("noise", "order", "names"):
        draw(first[name])
    extra = {"epoch": 3, "losses": [0.5, float("inf")], "note": "ü"}
    checkpoints(tmp_path).save(12, extra=extra, **first)
    store = checkpoints(tmp_path)
    assert store.load(**second) == 12
    assert store.extra == extra
    assert bytes_of(second["model"]) == bytes_of(first["model"])
    assert second["ema"].updates == 1
    assert torch.equal(second["clip"].running, first["clip"].running)
    assert second["scaler"].get_scale() == 4.0
    assert second["loader"].place == 7
    for name in ("noise", "order", "names"):
        assert draw(second[name]) == draw(first[name])


def draw(generator: Any) -> float:
    return float(torch.rand((), generator=generator)) if isinstance(generator, torch.Generator) else generator.random()


def draws() -> list[float]:
    return [random.random(), random.gauss(), np.random.random(), np.random.normal(), float(torch.rand(()))]


@pytest.mark.parametrize(("saved", "loaded", "same"), [(True, True, True), (True, False, False), (False, True, False)])
def test_global_random_states_come_back_if_asked(tmp_path: Path, saved: bool, loaded: bool, same: bool) -> None:
    draws()
    checkpoints(tmp_path).save(1, model=net(), rng=saved)
    then = draws()
    checkpoints(tmp_path).load(rng=loaded)
    assert (draws() == then) == same


def test_there_is_nothing_to_load_at_first(tmp_path: Path) -> None:
    assert checkpoints(tmp_path).load(model=net()) is None
    assert not (tmp_path / "ckpt").exists()


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    store, model = checkpoints(tmp_path, keep=2), net()
    for step, score in enumerate([5.0, 2.0, float("nan"), 3.0, torch.tensor(4.0, requires_grad=True), None]):
        store.save(step, model=model, score=score)
    assert store.steps == [1, 4, 5]
    del store
    again = checkpoints(tmp_path, keep=1)
    assert again.best == 1, "also known to a new process"
    assert again.load(best=True, model=model) == 1
    with pytest.raises(UsageError, match=r"no checkpoint of step 3; it has \[1, 4, 5\]"):
        again.load(step=3, model=model)
    with pytest.raises(UsageError, match="no best one"):
        checkpoints(tmp_path / "other").load(best=True)


def test_multiples_are_kept_too(tmp_path: Path) -> None:
    store = checkpoints(tmp_path, keep=1, keep_every=10)
    for step in range(5, 31, 5):
        store.save(step, model=net())
    assert store.steps == [10, 20, 30]


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)


def three(tmp_path: Path) -> dict[int, list[bytes]]:
    store, model, known = checkpoints(tmp_path), net(), {}
    for step in (1, 2, 3):
        with torch.no_grad():
            model[0].weight.fill_(step)
        store.save(step, model=model)
        known[step] = bytes_of(model)
    return known


def test_a_damaged_one_is_left_for_the_one_before_with_a_message(tmp_path: Path) -> None:
    known, said, model = three(tmp_path), list[str](), net()
    flip(tmp_path / "ckpt" / "step_00000003" / "model.safetensors")
    assert checkpoints(tmp_path, say=said.append).load(model=model) == 2
    assert bytes_of(model) == known[2]
    assert len(said) == 1
    assert "step_00000003 cannot be used" in said[0]
    assert "is damaged: its sha256" in said[0]
    assert checkpoints(tmp_path).load() == 2, "set aside: told once"


def test_without_the_hash_damage_would_not_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    known, model = three(tmp_path), net()
    flip(tmp_path / "ckpt" / "step_00000003" / "model.safetensors")
    monkeypatch.setattr(manifest, "_check_digest", lambda *_: None)
    assert checkpoints(tmp_path).load(model=model) == 3
    assert bytes_of(model) not in known.values()


def test_where_all_are_damaged_it_never_starts_anew_in_silence(tmp_path: Path) -> None:
    three(tmp_path)
    for path in (tmp_path / "ckpt").glob("*/model.safetensors"):
        flip(path)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"No checkpoint in .* 3 are damaged"):
            checkpoints(tmp_path, say=lambda _: None).load(model=net())


def test_an_earlier_step_is_saved_only_on_purpose(tmp_path: Path) -> None:
    """A loop that forgot to load would delete a day of training."""
    three(tmp_path)
    store, model, said = checkpoints(tmp_path, say=[].append), net(), list[str]()
    with pytest.raises(UsageError, match="has checkpoints up to step 3, and step 1 is to be saved"):
        store.save(1, model=model)
    store.load(model=model)
    with pytest.raises(UsageError, match="Continue from there"):
        store.save(2, model=model)
    store._say = said.append
    store.load(step=1, model=model)
    store.save(2, model=model)
    assert store.steps == [1, 2]
    assert said == ["Removed checkpoints [3]: training went back to before step 2."]
    store.save(2, model=model)
    assert store.steps == [1, 2], "the same step again is the same step"


def test_two_trainings_cannot_share_a_folder(tmp_path: Path) -> None:
    first = checkpoints(tmp_path)
    first.save(1, model=net())
    with pytest.raises(RunBusy, match=r"ckpt is in use by process \d+ on .*\. Wait until it ends"):
        checkpoints(tmp_path).save(2, model=net())
    assert checkpoints(tmp_path).load() == 1, "reading is free"
    del first
    gc.collect()
    checkpoints(tmp_path).save(2, model=net())


class Odd:
    def state_dict(self) -> dict[str, Any]:
        return {"f": {"deep": print}}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "Give what is to be saved by name"),
        ({"state": net()}, "not as state or manifest"),
        ({"model": 3}, "model is an int, which has no state_dict"),
        ({"odd": Odd()}, "odd, f/deep, is a builtin_function_or_method, which cannot be stored without a pickle"),
        ({"Model": net()}, "not a plain lower-case file name"),
        ({"model": net(), "extra": {"a": torch.ones(1)}}, r"state\.extra\.a is a Tensor; numbers, text and lists"),
        ({"model": net(), "extra": {1: 2}}, r"the key 1 is a int, not text"),
    ],
    ids=lambda given: str(given)[:20],
)
def test_what_cannot_be_saved_is_refused_in_words(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    store = checkpoints(tmp_path)
    with pytest.raises((UsageError, CheckpointError), match=words):
        store.save(1, **given)
    assert store.steps == []


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    model = net()
    with torch.no_grad():
        model[0].weight[0, 0] = float("nan")
    with pytest.raises(CheckpointError, match=r"model tensor 0\.weight holds 1 NaN or Inf"):
        checkpoints(tmp_path).save(1, model=model)


def test_what_does_not_fit_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    checkpoints(tmp_path).save(1, model=model, optimizer=optimizer)
    other = net(7)
    before = bytes_of(other)
    with pytest.raises(CheckpointError, match="has no ema and no scaler; it has model, optimizer"):
        checkpoints(tmp_path).load(model=other, ema=EMA(other), scaler=None)
    with pytest.raises(CheckpointError, match="is not of this model"):
        checkpoints(tmp_path).load(model=nn.Linear(3, 4))
    with pytest.raises(CheckpointError, match="optimizer does not fit what it is loaded into"):
        checkpoints(tmp_path).load(model=other, optimizer=torch.optim.Adam([nn.Parameter(torch.ones(1))]))
    assert bytes_of(other) == before


def test_wrapped_models_have_plain_names(tmp_path: Path) -> None:
    model, other = net(), net(4)
    checkpoints(tmp_path).save(1, model=torch.compile(model))
    assert checkpoints(tmp_path).load(model=other) == 1
    assert bytes_of(other) == bytes_of(model)
    from safetensors.torch import load_file

    assert load_file(tmp_path / "ckpt" / "step_00000001" / "model.safetensors").keys() == model.state_dict().keys()


def test_another_environment_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(saves, "environment", lambda: {"torch": "1.0"})
    checkpoints(tmp_path).save(1, model=net())
    checkpoints(tmp_path, say=said.append).load()
    assert said == [f"Another environment than at the checkpoint (torch was 1.0, is {torch.__version__}): "
                    "the bytes may differ."]  # fmt: skip


def test_a_checkpoint_of_a_run_is_not_taken_for_one_of_these(tmp_path: Path) -> None:
    from moments import snapshot

    writer.write(tmp_path / "ckpt", snapshot(3), disk=QUICK)
    with pytest.raises(CheckpointError, match=r"is not one of safelight.Checkpoints"):
        checkpoints(tmp_path).load(model=net())


def test_no_file_is_a_pickle(tmp_path: Path) -> None:
    model = net()
    path = checkpoints(tmp_path).save(1, model=model, optimizer=torch.optim.Adam(model.parameters()))
    assert path is not None
    assert sorted(each.name for each in path.iterdir()) == ["manifest.json", "model.safetensors", "state.json"]
    assert json.loads((path / "state.json").read_text())["parts"]["optimizer"]["state"] == {}


# Killed in a plain loop. `python -m torture --only "plain loops"` does it more often.

CALLS = [3, 17, 40, 71, 72, 73, 90, 101, 120, 133, 55, 62]  # to the disk: two saves and a half


def killed(folder: Path, calls: list[int], fell: list[str] | None = None) -> Callable[[], list[str]]:
    """What is wrong with a loop that is killed at these calls, and again until it ends; its marks are made now."""
    marks = undisturbed(folder / "whole", steps=20)
    tell = (lambda _: None) if fell is None else fell.append
    return lambda: torment(folder / "killed", [Blow(call) for call in calls], marks, tell)


def test_a_plain_loop_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    fell: list[str] = []
    assert killed(tmp_path, CALLS, fell)() == []
    assert len(fell) == len(CALLS)
    assert "write" in fell


def test_written_in_place_it_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without the temporary name and the rename after it."""

    def in_place(folder: Path, snapshot: Any, *, disk: Any) -> Path:
        path = retention.place(folder, snapshot.step)
        writer._write_files(path, prepare(snapshot), disk, SaveCoordinator())
        return path

    torment_it = killed(tmp_path, CALLS[:5])
    monkeypatch.setattr(saves, "write", in_place)
    assert torment_it()


def test_without_random_states_it_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torment_it = killed(tmp_path, CALLS[2:6])
    monkeypatch.setattr(saves, "restore_random_states", lambda _: [])
    assert any(OTHER_STATE in words for words in torment_it())
