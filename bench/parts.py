"""What each public part costs a plain PyTorch loop per step, beside what people write by hand in its place.

python -m bench.parts                 # a minute or two
python -m bench.parts --rounds 4      # to try it
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import safelight
from bench.measure import ratios, spread, turns, write_table
from safelight.config.resolve import resolve
from safelight.training.network import build_model

BATCH, BLOCK = 16, 2  # images of a step, steps of a turn
PLAIN = "nothing"
SETTINGS = {"model.conditional": False, "data.channels": 1, "data.image_size": 16, "data.classes": 10}

After = Callable[[torch.Tensor], object]  # backward was made; the loss
Part = Callable[[nn.Module, torch.optim.Optimizer], After]


def step_alone(_: nn.Module, optimizer: torch.optim.Optimizer) -> After:
    return lambda _: optimizer.step()


def with_ema(model: nn.Module, optimizer: torch.optim.Optimizer) -> After:
    ema = safelight.EMA(model, 0.999)
    return lambda _: (optimizer.step(), ema.update())


def with_ema_by_hand(model: nn.Module, optimizer: torch.optim.Optimizer) -> After:
    shadow = copy.deepcopy(model)

    @torch.no_grad()
    def update(_: torch.Tensor) -> None:
        optimizer.step()
        for average, parameter in zip(shadow.parameters(), model.parameters(), strict=True):
            average.mul_(0.999).add_(parameter, alpha=0.001)

    return update


def with_clipper(model: nn.Module, optimizer: torch.optim.Optimizer) -> After:
    clip = safelight.AdaptiveClipper(model.parameters())
    return lambda _: (clip(), optimizer.step())


def with_clip_by_hand(model: nn.Module, optimizer: torch.optim.Optimizer) -> After:
    return lambda _: (nn.utils.clip_grad_norm_(model.parameters(), 1.0), optimizer.step())


def with_guard(model: nn.Module, optimizer: torch.optim.Optimizer) -> After:
    return safelight.FiniteGuard(model, optimizer).step


def with_check_by_hand(model: nn.Module, optimizer: torch.optim.Optimizer) -> After:
    def update(loss: torch.Tensor) -> None:
        if loss.isfinite() and all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None):
            optimizer.step()

    return update


PARTS: dict[str, Part] = {
    PLAIN: step_alone,
    "EMA": with_ema,
    "EMA by hand, tensor by tensor": with_ema_by_hand,
    "AdaptiveClipper": with_clipper,
    "clip_grad_norm_": with_clip_by_hand,
    "FiniteGuard": with_guard,
    "isfinite by hand, tensor by tensor": with_check_by_hand,
}


def loop(part: Part) -> Callable[[], None]:
    """Some steps of a U-Net on noise, with the part."""
    torch.manual_seed(0)
    model = build_model(resolve(preset="digits", settings=SETTINGS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    after = part(model, optimizer)
    x, t = torch.randn(BATCH, 1, 16, 16), torch.randint(0, 1000, (BATCH,))

    def steps() -> None:
        for _ in range(BLOCK):
            loss = (model(x, t).sample - x).square().mean()
            loss.backward()
            after(loss)
            optimizer.zero_grad()

    return steps


def timed(work: Callable[[], object]) -> float:
    """Seconds of the processor: what else the machine does is not in them."""
    began = time.process_time()
    work()
    return time.process_time() - began


def measure(rounds: int) -> dict[str, list[float]]:
    """Seconds of a step, by part; the first turn of each is for warming up."""
    loops = {name: loop(part) for name, part in PARTS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for train in loops.values():
        train()
    for name in turns([*loops], rounds):
        seconds[name].append(timed(loops[name]) / BLOCK)
    return seconds


def measure_saves(rounds: int) -> dict[str, list[float]]:
    """Seconds of a save of weights and moments, read back by Checkpoints; torch.save neither syncs nor proves it."""
    model = build_model(resolve(preset="digits", settings=SETTINGS))
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    seconds: dict[str, list[float]] = {"Checkpoints.save": [], "torch.save": []}
    with tempfile.TemporaryDirectory() as folder:
        saves, file = safelight.Checkpoints(Path(folder) / "ckpt"), Path(folder) / "plain.pt"
        for step in range(1, rounds + 1):
            seconds["Checkpoints.save"].append(timed(lambda: saves.save(step, model=model, optimizer=optimizer)))  # noqa: B023
            both = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            seconds["torch.save"].append(timed(lambda: torch.save(both, file)))  # noqa: B023
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="turns of each")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    found = measure(rounds)
    rows = [
        [name, spread([1000 * each for each in seconds]).show(".1f"), ratios(found[PLAIN], seconds).show(".3f")]
        for name, seconds in found.items()
    ]
    saves = measure_saves(rounds)
    rows += [[name, spread([1000 * each for each in seconds]).show(".1f"), "–"] for name, seconds in saves.items()]
    columns = ["part", "ms of one core, of a step or a save", "times a step with nothing"]
    write_table("parts", "What a part costs", columns, rows, NOTES)


NOTES = [
    f"The U-Net of the preset digits, batch {BATCH}, one thread, fp32, AdamW, {BLOCK} steps in a turn; all take turns "
    "in one process. Time of the processor: neither what else the machine does nor waiting for the disk is in it. "
    "Median, with the quartiles; the ratio is taken within each round.",
    "Checkpoints.save: weights and moments, synced, renamed and read back. torch.save: the same tensors into one file, "
    "neither synced nor proven.",
]


if __name__ == "__main__":
    main()
