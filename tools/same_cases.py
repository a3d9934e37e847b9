"""The runs that `tools.same` compares, trained with the tree that PYTHONPATH names: only public names are used here.

Faults are put in from outside, through torch and diffusers, which both trees share.
"""

from __future__ import annotations

import functools
import json
import math
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diffusers
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

import safelight

TINY: dict[str, Any] = {
    "model.widths": "16", "model.norm_groups": 8, "model.attention": "", "model.conditional": False, "model.layers": 1,
    "train.steps": 12, "train.batch_size": 8, "train.threads": 1, "train.preflight": "off", "checkpoint.every": 4,
    "sample.every": 100, "sample.count": 4, "sample.steps": 3, "evaluate.every": 0, "ema.snapshots": 2,
    "optimizer.lr": 1e-3,
}  # fmt: skip
HEALED = {"train.steps": 64, "checkpoint.every": 10, "optimizer.lr": 1e-2, "heal.enabled": True, "ema.snapshots": 0}
SHARED = {"train.batch_size": 24}
HARD = {"train.shards": 12, "model.dropout": 0.3, "model.spectral_norm": True}

Settings = dict[str, Any]
Answer = Callable[[nn.Module, Tensor, Callable[[], Any]], Any]  # stands in for a call of the U-Net that is trained


@dataclass(frozen=True)
class Case:
    """One run: what it is trained with, what is done to it, and on how many processes."""

    settings: Settings = field(default_factory=dict)
    kills: tuple[int, ...] = ()  # updates of the process at which it is killed, then resumed
    fault: Callable[[], Answer] | None = None
    processes: int = 1
    act: str | None = None  # what healing must have done: a matrix in which nothing happens proves nothing


def answer_nan_for(label: int) -> Answer:
    """The rows of one class come out as NaN."""

    def answer(model: nn.Module, x: Tensor, call: Callable[[], Any]) -> Any:
        found, labels = call(), call.labels  # type: ignore[attr-defined]
        bad = torch.where(labels == label, math.nan, 1.0).to(found.sample)
        return type(found)(sample=found.sample * bad[:, None, None, None])

    return answer


def answer_wrong_once(calls: Sequence[int], factor: float) -> Answer:
    """These calls, counted from 0, come out multiplied; a replay of them does not."""
    count = iter(range(1 << 30))

    def answer(model: nn.Module, x: Tensor, call: Callable[[], Any]) -> Any:
        found = call()
        return type(found)(sample=found.sample * factor) if next(count) in calls else found

    return answer


def overflow_in_fp16(after: int) -> Answer:
    """From a call on, every gradient overflows as long as the arithmetic is fp16."""
    count = iter(range(1 << 30))

    def answer(model: nn.Module, x: Tensor, call: Callable[[], Any]) -> Any:
        found = call()
        if next(count) >= after and torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.half:
            found.sample.register_hook(lambda gradient: gradient * math.inf)
        return found

    return answer


def run_out_of_memory(most: int) -> Answer:
    """More images than this do not fit."""

    def answer(model: nn.Module, x: Tensor, call: Callable[[], Any]) -> Any:
        if len(x) > most:
            raise torch.OutOfMemoryError(f"out of memory with {len(x)} images")
        return call()

    return answer


def leave_train_mode(after: int) -> Answer:
    """At one call the model is left in evaluation mode."""
    count = iter(range(1 << 30))

    def answer(model: nn.Module, x: Tensor, call: Callable[[], Any]) -> Any:
        if next(count) == after:
            model.eval()
        return call()

    return answer


VARIANTS: dict[str, Settings] = {
    "plain": {},
    "accumulated": {"train.accumulate": 4},
    "workers": {"data.workers": 4, "data.flip": True},
    "dropout": {"model.dropout": 0.3},
    "adaptive-clipping": {"clipping.kind": "adaptive"},
    "exponential": {"ema.kind": "exponential"},
    "conditional": {"model.conditional": True},
    "spectral-norm": {"model.spectral_norm": True},
    "bf16": {"train.precision": "bf16"},
    "fp16": {"train.precision": "fp16"},
    "epochs": {"train.batch_size": 2048, "train.steps": 6, "checkpoint.every": 2},
    "epsilon": {"diffusion.prediction": "epsilon", "diffusion.loss": "huber", "optimizer.lr": 3e-3},
}
CASES: dict[str, Case] = {
    **{name: Case(settings) for name, settings in VARIANTS.items()},
    **{f"{name}-killed": Case(settings, kills=(5, 4)) for name, settings in VARIANTS.items()},
    "watched": Case({"train.preflight": "stop", "sample.every": 5, "train.steps": 70, "model.conditional": True}),
    "evaluated": Case({"evaluate.every": 6, "evaluate.samples": 64, "data.held_out": 0.1, "sample.every": 4}),
    "heal-quarantine": Case(
        HEALED | {"model.conditional": True, "train.steps": 24, "heal.budget": 50},
        fault=lambda: answer_nan_for(7),
        act="quarantine",
    ),
    "heal-redo": Case(HEALED, fault=lambda: answer_wrong_once([25, 41], 1e4), act="redo"),
    "heal-redo-nan": Case(HEALED, kills=(40,), fault=lambda: answer_wrong_once([30], math.nan), act="redo"),
    "heal-rate": Case(HEALED | {"optimizer.lr": 1.0}, act="lower-rate"),
    "heal-rate-unclipped": Case(
        HEALED | {"optimizer.lr": 1e6, "clipping.kind": "none", "train.max_refused": 4}, act="lower-rate"
    ),
    "heal-precision": Case(
        HEALED | {"train.precision": "fp16"}, fault=lambda: overflow_in_fp16(30), act="change-precision"
    ),
    "heal-memory": Case(HEALED, kills=(30,), fault=lambda: run_out_of_memory(4), act="halve-batch"),
    "heal-mode": Case(HEALED | {"model.dropout": 0.3}, fault=lambda: leave_train_mode(20), act="restore-mode"),
    "heal-off-nan": Case({"train.max_refused": 3}, fault=lambda: answer_wrong_once([5, 6, 9], math.nan)),
    "two": Case(SHARED, processes=2),
    "three": Case(SHARED | {"train.accumulate": 2}, processes=3),
    "two-exact": Case(SHARED | HARD, processes=2),
    "three-exact-killed": Case(SHARED | HARD, kills=(6,), processes=3),
    "two-sharded": Case(SHARED | {"train.weights": "divided"}, processes=2),
    "two-sharded-killed": Case(SHARED | {"train.weights": "divided"}, kills=(6,), processes=2),
    "two-heal-rate": Case(SHARED | HEALED | {"optimizer.lr": 1.0}, processes=2, act="lower-rate"),
}
LOOPS = ("loop-everything", "loop-loss-only", "loop-accumulated", "loop-wrong-target")


def put_in(fault: Answer) -> None:
    """Every call of the U-Net in training goes through the fault."""
    original = diffusers.UNet2DModel.forward

    def forward(model: Any, sample: Tensor, timestep: Any, class_labels: Tensor | None = None, **more: Any) -> Any:
        def call() -> Any:
            return original(model, sample, timestep, class_labels, **more)

        if not (torch.is_grad_enabled() and any(p.requires_grad for p in model.parameters())):
            return call()
        call.labels = class_labels  # type: ignore[attr-defined]
        found = fault(model, sample, call)
        return found if more.get("return_dict", True) else (found.sample,)

    diffusers.UNet2DModel.forward = forward  # type: ignore[method-assign]


def kill_at(update: int) -> None:
    """This process dies in the middle of an update, as by a power loss: nothing is flushed, nothing said."""
    count = iter(range(1 << 30))

    def look(*_: Any) -> None:
        if next(count) == update:
            os.kill(os.getpid(), signal.SIGKILL)

    register_optimizer_step_pre_hook(look)


def save_at_once() -> None:
    """Every save ends before the next step: a slow disk skips none, so the same checkpoints are there every time."""
    start = threading.Thread.start

    def wait(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "safelight-checkpoint":
            thread.join()

    threading.Thread.start = wait  # type: ignore[method-assign]


def sit(case: Case, run: Path, sitting: int, rank: int) -> None:
    """Trains, or resumes, until the end or the next kill."""
    save_at_once()
    if case.fault is not None:
        put_in(case.fault())
    if sitting < len(case.kills) and rank == case.processes - 1:
        kill_at(case.kills[sitting])
    if sitting == 0:
        safelight.train("digits", run=run, settings=TINY | case.settings | {"train.timeout": 60.0})
    else:
        safelight.resume(run)


def fork(act: Callable[[], object], said: Path, **environment: str) -> int:
    """A process of its own: nothing that is patched in it outlives it."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.environ.update(environment)
        act()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def train_case(name: str, folder: Path) -> None:
    """All sittings of a run; the exit codes of each are part of what is compared."""
    case, run, ends = CASES[name], folder / "run", []
    for sitting in range(len(case.kills) + 1):
        world = {"WORLD_SIZE": str(case.processes), "LOCAL_WORLD_SIZE": str(case.processes)}
        world |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        pids = []
        for rank in range(case.processes):
            place = world | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if case.processes > 1 else {}
            pids.append(fork(functools.partial(sit, case, run, sitting, rank), folder / f"said-{rank}", **place))
        ends.append([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
    (folder / "ends.json").write_text(json.dumps(ends))
    refuse_idle(case, folder, ends)
    pid = fork(lambda: note_findings(run, folder), folder / "said-doctor")
    os.waitpid(pid, 0)


def refuse_idle(case: Case, folder: Path, ends: Sequence[Sequence[int]]) -> None:
    """What was to happen to a run must have happened."""
    killed = [codes[-1] for codes in ends[:-1]]
    if any(ends[-1]) or killed != [-signal.SIGKILL] * len(case.kills):
        sys.exit(f"{folder.name} ended with {ends}: see {folder}")
    if case.act is not None:
        newest = max((folder / "run" / "checkpoints").glob("step_*"))
        journal = json.loads((newest / "state.json").read_text())["journal"]
        if case.act not in {act["kind"] for act in journal}:
            sys.exit(f"{folder.name}: healing did not {case.act}: {journal}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def note_findings(run: Path, folder: Path) -> None:
    found = [finding.to_json() for finding in safelight.diagnose(run)]
    (folder / "findings.json").write_text(json.dumps(found, default=str))


def train_loop(name: str, folder: Path) -> None:
    """A loop that is not Safelight's, under its watch: a U-Net, AdamW, an EMA, all in plain torch."""
    from sklearn.datasets import load_digits

    torch.manual_seed(0)
    images = torch.from_numpy(load_digits().images).float()[:, None] / 8 - 1
    model = diffusers.UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, block_out_channels=(16,), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",),
    )  # fmt: skip
    average = deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = diffusers.DDPMScheduler()
    accumulate = 2 if name == "loop-accumulated" else 1
    given: dict[str, Any] = {} if name == "loop-loss-only" else {
        "ema": average, "schedule": scheduler, "prediction": "epsilon", "data": images,
    }  # fmt: skip
    watch = safelight.watch(model, optimizer, run=folder / "run", **given)
    for step in range(80 * accumulate):
        x0 = images[torch.randint(len(images), (16,))]
        noise, t = torch.randn_like(x0), torch.randint(1000, (16,))
        x_t = scheduler.add_noise(x0, noise, t)  # type: ignore[arg-type]
        pred = model(x_t, t).sample
        target = scheduler.get_velocity(x0, noise, t) if name == "loop-wrong-target" else noise  # type: ignore[arg-type]
        loss = torch.nn.functional.mse_loss(pred, target)
        (loss / accumulate).backward()
        if (step + 1) % accumulate == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for ours, theirs in zip(average.parameters(), model.parameters(), strict=True):
                    ours.lerp_(theirs, 0.01)
        seen = {"t": t, "x0": x0, "noise": noise, "x_t": x_t, "target": target, "pred": pred}
        watch.step(loss, **{} if name == "loop-loss-only" else seen)
    watch.close()
    from safetensors.torch import save_file

    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "weights.safetensors")
    note_findings(folder / "run", folder)


def main(out: Path, names: Sequence[str]) -> None:
    """Each case into a folder of its own below `out`."""
    torch.set_num_threads(1)
    for name in names:
        folder = out / name
        folder.mkdir(parents=True)
        if name in LOOPS:
            pid = fork(lambda name=name, folder=folder: train_loop(name, folder), folder / "said")
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            (folder / "ends.json").write_text(json.dumps([[code]]))
        else:
            train_case(name, folder)
        print(name, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
