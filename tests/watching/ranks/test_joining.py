"""Loops on two processes, each with pieces of the weights or all of them, under watch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from joint_loops import (
    PROCESSES,
    STEPS,
    WRAPPED,
    Small,
    batches,
    findings,
    loop,
    note,
    noted,
    run_together,
    series,
    watching,
)
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

import safelight
from safelight.vocabulary import DRIFT, GRADIENTS_APART, OVERLAP, REDUCTION, SAME_NOISE

JOINED = ("gradient/norm", "gradient/part/", "gradient/zero/", "update/ratio/", "weight/norm/", "gradient/nonfinite")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, float]]]:
    """The readings of one process with the whole batch."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    loop(Small(), 0, 1, watching(folder))
    return series(folder)


@pytest.mark.parametrize("kind", ["fsdp2", "hsdp", "fsdp1", "fsdp1-flat", "ddp"])
def test_norms_are_those_of_one_process_and_weights_the_same_bytes(
    tmp_path: Path, kind: str, alone: dict[str, list[tuple[int, float]]]
) -> None:
    def act(rank: int, size: int) -> None:
        plain = loop(WRAPPED[kind](Small()), rank, size, None)
        watched = loop(WRAPPED[kind](Small()), rank, size, watching(tmp_path / "run"))
        assert all(map(torch.equal, plain, watched))

    run_together(tmp_path, act)
    found = series(tmp_path / "run")
    wanted = [name for name in alone if name.startswith(JOINED)]
    if kind == "fsdp1-flat":  # which knows no layers
        wanted = ["gradient/norm", "gradient/nonfinite"]
    assert len(wanted) > 1
    for name in wanted:
        assert found[name] == [(step, pytest.approx(value, rel=1e-4, abs=1e-6)) for step, value in alone[name]], name
    assert findings(tmp_path / "run") == {}
    assert {value for _, value in found[OVERLAP.name] + found[SAME_NOISE.name]} == {0.0}
    if kind in ("ddp", "hsdp"):
        assert {value for _, value in found[DRIFT.name] + found[GRADIENTS_APART.name]} == {0.0}
    else:
        assert DRIFT.name not in found, "no two processes hold the same"
    if kind == "ddp":
        assert found[REDUCTION.name][0] == (0, pytest.approx(1))


def desync(rank: int) -> dict[str, Any]:
    def shift(step: int, model: nn.Module) -> None:
        if rank == 1 and step == 4:
            with torch.no_grad():
                parameter = next(model.parameters())
                getattr(parameter, "to_local", lambda: parameter)().add_(0.01)

    return {"before_step": shift}


def reduce(op: Any, by: int) -> Any:
    def average(step: int, model: nn.Module) -> None:
        for parameter in model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad, op)
            parameter.grad /= by

    return average


def unsynchronised(model: Any) -> None:
    model.set_requires_gradient_sync(False)


def never_added_up(model: Any) -> None:
    model.set_requires_all_reduce(False)


def undivided(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo knows no other


def of_one_seed() -> Any:
    generator = torch.Generator().manual_seed(99)
    return lambda x, noise: (x, torch.randn(noise.shape, generator=generator))


FAULTS: dict[str, tuple[str, Any, dict[str, str]]] = {
    "desync": ("ddp", desync, {"distributed.drift": "error"}),
    "desync of replicas of shards": ("hsdp", desync, {"distributed.drift": "error"}),
    "never synchronised": (
        "ddp", lambda rank: {"call": lambda model: model.module}, {"distributed.not-reduced": "error"},
    ),
    "sharded and never synchronised": (
        "fsdp2", lambda rank: {"prepare": unsynchronised}, {"distributed.not-reduced": "error"},
    ),
    "copies never synchronised": (
        "hsdp", lambda rank: {"prepare": never_added_up}, {"distributed.not-reduced": "error"},
    ),
    "sharded and added": (
        "fsdp2", lambda rank: {"prepare": undivided, "adam": False}, {"distributed.summed": "warning"},
    ),
    "added by hand": (
        "by-hand", lambda rank: {"before_step": reduce(dist.ReduceOp.SUM, 1), "adam": False},
        {"distributed.summed": "warning"},
    ),
    "added by hand with Adam": (
        "by-hand", lambda rank: {"before_step": reduce(dist.ReduceOp.SUM, 1)}, {"distributed.summed": "info"},
    ),
    "averaged by hand": ("by-hand", lambda rank: {"before_step": reduce(dist.ReduceOp.SUM, PROCESSES)}, {}),
    "other data": (
        "fsdp2", lambda rank: {"change": lambda x, noise: (x / 2 + 0.5 if rank else x, noise)},
        {"distributed.other-data": "warning"},
    ),
    "the same noise": (
        "fsdp2", lambda rank: {"change": of_one_seed()}, {"distributed.same-noise": "warning"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_between_processes_is_named(tmp_path: Path, fault: str) -> None:
    kind, of, expected = FAULTS[fault]

    def act(rank: int, size: int) -> None:
        loop(WRAPPED[kind](Small()), rank, size, watching(tmp_path / "run"), **of(rank))

    run_together(tmp_path, act)
    assert findings(tmp_path / "run") == expected


@pytest.mark.parametrize("seeds_differ", [True, False])
def test_the_same_data_on_all_processes_is_named(tmp_path: Path, seeds_differ: bool) -> None:
    """Of a loader without a sampler that divides, though the loop passes nothing of it; and of one seed for all."""

    def act(rank: int, size: int) -> None:
        model = WRAPPED["fsdp2"](Small())
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        data = torch.rand(64, 12, generator=torch.Generator().manual_seed(0))
        torch.manual_seed(1 + rank * seeds_differ)
        with safelight.watch(model, optimizer, run=tmp_path / "run", say=lambda _: None) as watch:
            for x in torch.utils.data.DataLoader(data.unbind(), batch_size=8):  # type: ignore[arg-type]
                loss = model(x + torch.randn_like(x), torch.randint(0, 100, (8,))).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                watch.step(loss)

    run_together(tmp_path, act)
    seeds = {} if seeds_differ else {"distributed.same-noise": "warning"}
    assert findings(tmp_path / "run") == {"distributed.overlap": "warning"} | seeds


@pytest.mark.parametrize("who", ["the first", "all, and the watch of another fails"])
def test_a_process_that_tells_nothing_keeps_nobody_waiting(
    tmp_path: Path, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safelight.watching.ranks.rank_zero.PATIENCE", 0.05)
    monkeypatch.setattr("safelight.watching.ranks.rank_zero.LAST_WAIT", 0.2)

    def act(rank: int, size: int) -> None:
        plain = loop(WRAPPED["fsdp2"](Small()), rank, size, None)
        attach = watching(tmp_path / "run")
        if rank and who == "the first":
            attach = None
        if rank and attach is not None:

            def fail(*_: object) -> Tensor:
                raise ArithmeticError("of ours")

            monkeypatch.setattr("safelight.watching.ranks.rank_monitor.RankMonitor.take", fail)
        watched = loop(WRAPPED["fsdp2"](Small()), rank, size, attach)
        note(tmp_path, str(rank), same=all(map(torch.equal, plain, watched)))

    run_together(tmp_path, act)
    assert [noted(tmp_path, str(rank)) for rank in range(PROCESSES)] == [{"same": True}] * PROCESSES
    found, said = series(tmp_path / "run"), (tmp_path / "run.said").read_text()
    assert len(found["loss/mean"]) == STEPS
    assert "gradient/norm" not in found
    assert "Process 1 did not tell" in said or "process 1 stopped (ArithmeticError: of ours)" in said


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    def act(rank: int, size: int) -> None:
        sampler = lambda model, noise: model(noise, torch.zeros(len(noise), dtype=torch.long))  # noqa: E731
        loop(WRAPPED["fsdp2"](Small()), rank, size, watching(tmp_path / "run", sampler=sampler, sample_every=2))

    run_together(tmp_path, act)
    assert "No samples are drawn and evaluated: the weights are sharded" in (tmp_path / "run.said").read_text()
    coverage = safelight.diagnose(tmp_path / "run").coverage
    left_out = {code for code, reason in coverage.unable.items() if "the weights are sharded" in reason}
    assert {"ACC001", "LOS006"} <= left_out  # by replays of a step
    assert not left_out & set(coverage.arguments)


def test_under_ddp_the_first_process_may_be_watched_alone(tmp_path: Path) -> None:
    """Its norms are those of all; it is not compared with anybody, and waits for nobody."""

    def act(rank: int, size: int) -> None:
        loop(WRAPPED["ddp"](Small()), rank, size, None if rank else watching(tmp_path / "run"))

    run_together(tmp_path, act)
    found = series(tmp_path / "run")
    assert len(found["gradient/norm"]) == STEPS
    assert not any(name.startswith("distributed/") for name in found)
    assert "did not tell" not in (tmp_path / "run.said").read_text()


def train_with_average(model: nn.Module, rank: int, size: int, folder: Path) -> None:
    optimizer = torch.optim.SGD(reversed(list(model.parameters())), 0.1)  # in another order than the model's
    average = {name: p.detach().clone() for name, p in model.named_parameters()}
    with safelight.watch(model, optimizer, run=folder, ema=average, say=lambda _: None) as watch:
        for x, _, t in batches(rank, size, 3):
            loss = (model(x, t) - x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    average[name].lerp_(parameter, 0.3)
            watch.step(loss)


def test_the_distance_of_an_average_is_that_of_whole_tensors(tmp_path: Path) -> None:
    run_together(
        tmp_path, lambda rank, size: train_with_average(WRAPPED["fsdp2"](Small()), rank, size, tmp_path / "run")
    )
    train_with_average(Small(), 0, 1, tmp_path / "alone")
    found, wanted = (series(tmp_path / name)["ema/distance"] for name in ("run", "alone"))
    assert wanted[0][1] > 0
    assert found == [(0, pytest.approx(wanted[0][1], rel=1e-4))]
