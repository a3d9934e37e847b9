"""Hooks of ours are in no copy of a network, and leave it as it was."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import safelight
from safelight.healing.finite_guard import FiniteGuard
from safelight.monitors.hook_table import TABLES, HookTable, hook_after_call, hook_before_call


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x))) * (1 + t[:, None])


INPUTS = (torch.ones(2, 4), torch.zeros(2))


def saved(what: Any) -> Any:
    file = io.BytesIO()
    torch.save(what, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def trained(model: nn.Module) -> dict[str, Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        model(*INPUTS).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


ACTS: dict[str, Callable[[nn.Module, Any], Any]] = {
    "torch.save": lambda model, _: saved(model).state_dict(),
    "pickle": lambda model, _: pickle.loads(pickle.dumps(model))(*INPUTS),
    "to a process": lambda model, _: pickle.loads(bytes(ForkingPickler.dumps(model)))(*INPUTS),
    "deepcopy": lambda model, _: trained(copy.deepcopy(model)),
    "deepcopy of both": lambda model, optimizer: copy.deepcopy((model, optimizer))[0].state_dict(),
    "shallow copy": lambda model, _: copy.copy(model)(*INPUTS),
    "averaged": lambda model, _: torch.optim.swa_utils.AveragedModel(model)(*INPUTS),
    "optimizer": lambda _, optimizer: saved(optimizer).state_dict()["param_groups"],
    "parameter": lambda model, _: saved(model.first.weight),
    "parameters": lambda model, _: copy.deepcopy(list(model.parameters())),
    "export": lambda model, _: torch.export.export(model, INPUTS).module()(*INPUTS),
    "trace": lambda model, _: torch.jit.trace(model, INPUTS)(*INPUTS),
    "script": lambda model, _: torch.jit.script(model)(*INPUTS),
    "symbolic trace": lambda model, _: torch.fx.symbolic_trace(model)(*INPUTS),
    "functional call": lambda model, _: torch.func.functional_call(model, dict(model.named_parameters()), INPUTS),
    "no hooks inside": lambda model, _: len(pickle.loads(pickle.dumps(model))._forward_hooks),
}


def lead(watched: bool, act: Callable[[nn.Module, Any], Any], run: Path) -> tuple[Any, dict[str, Tensor], list[str]]:
    """A loop of three steps, the act, and two steps more."""
    torch.manual_seed(0)
    model, said = Net(), list[str]()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    watch = safelight.watch(model, optimizer, run=run, say=said.append) if watched else None
    guard = FiniteGuard(model, optimizer, say=said.append) if watched else None
    found = None
    for step in range(5):
        x = torch.randn(8, 4)
        loss = (model(x, torch.zeros(8)) - x).square().mean()
        loss.backward()
        guard.step(loss) if guard else optimizer.step()
        optimizer.zero_grad()
        if watch is not None:
            watch.step(loss)
        if step == 2:
            found = act(model, optimizer)
    if watch is not None:
        watch.close()
    return found, model.state_dict(), said


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("name", ACTS)
def test_a_watched_model_is_saved_copied_and_exported_as_its_twin(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit
        plain, plain_weights, _ = lead(False, ACTS[name], tmp_path)
        found, weights, said = lead(True, ACTS[name], tmp_path / "run")
    assert same(plain, found)
    assert same(plain_weights, weights)
    assert not [words for words in said if "stopped" in words]


def test_a_scaler_under_watch_is_copied(tmp_path: Path) -> None:
    model, scaler = Net(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with safelight.watch(model, optimizer, run=tmp_path / "run", scaler=scaler, say=lambda _: None):
        for each in (copy.deepcopy(scaler), pickle.loads(pickle.dumps(scaler))):
            scaled = each.scale(model(*INPUTS).square().mean())
            scaled.backward()
            each.step(optimizer)
            each.update()
            assert each.get_scale() == scaler.get_scale()


def test_a_watch_that_is_sent_or_copied_watches_nothing(tmp_path: Path) -> None:
    with safelight.watch(Net(), run=tmp_path / "run", say=lambda _: None) as watch:
        for each in (copy.deepcopy(watch), pickle.loads(pickle.dumps(watch))):
            each.step(1.0)
            each.close()


def test_hooks_of_others_stay_theirs() -> None:
    """Those from before are removed by their handles, those from meanwhile stay, and the tables come back."""
    model, called = nn.Linear(2, 2), list[str]()
    tables = {name: getattr(model, name) for name in TABLES}
    before = model.register_forward_hook(lambda *_: called.append("before"))
    undo = [
        hook_after_call(model, lambda *_: called.append("ours")),
        hook_before_call(model, lambda *_: called.append("ours too")),
    ]
    meanwhile = model.register_forward_hook(lambda *_: called.append("meanwhile"))
    model(torch.ones(1, 2))
    assert called == ["ours too", "before", "ours", "meanwhile"]
    assert len(copy.copy(model._forward_hooks)) == 2
    before.remove()
    called.clear()
    model(torch.ones(1, 2))
    assert called == ["ours too", "ours", "meanwhile"]
    for each in undo:
        each()
    called.clear()
    model(torch.ones(1, 2))
    assert called == ["meanwhile"]
    meanwhile.remove()
    called.clear()
    model(torch.ones(1, 2))
    assert called == []
    assert model._forward_pre_hooks is tables["_forward_pre_hooks"]


def test_tables_come_back_when_nobody_else_came() -> None:
    model = nn.Linear(2, 2)
    tables = {name: getattr(model, name) for name in TABLES}
    undo = hook_after_call(model, lambda *_: None)
    assert isinstance(model._forward_hooks, HookTable)
    undo()
    assert all(getattr(model, name) is table for name, table in tables.items())
    assert type(model._forward_hooks) is OrderedDict
    model(torch.ones(1, 2))


def test_what_removes_a_hook_does_not_keep_the_network() -> None:
    net = Net()
    held, remove = weakref.ref(net), hook_before_call(net, lambda *_: None)
    del net
    gc.collect()
    assert held() is None
    remove()
