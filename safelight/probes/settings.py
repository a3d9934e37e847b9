"""What is known before anything is computed: the schedule, and what the optimizer holds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from safelight import checks
from safelight.config.tree import Prediction
from safelight.monitors.shards import local_of

SAMPLED_TENSORS, SAMPLED_NUMBERS = 64, 256  # frozen tensors, and numbers of each
HALFWAY, ENDED = (1e-3, 0.95), 0.05  # usual alphas_cumprod: 0.08 to 0.5 in the middle, 0.005 and less at the end
NEAR_ONE, LATE, STRAIGHT = 0.85, 0.8, 2.6  # alphas of 100 to 1,000 steps: 0.9 to 0.99, 0.84 to 0.98, 2 to 2.5
SMALLER = 4  # times as many numbers as an adapter has a weight beside it
ADAPTERS = ("lora", "adapter", "lokr", "loha", "oft_", "dora", "vera_", "hada_")  # of peft, LyCORIS and by hand


def measure_schedule(alphas: Tensor, prediction: Prediction | None) -> dict[str, float]:
    table = alphas.double().cpu().numpy()
    steps = np.diff(table)
    log_snr = np.log(np.clip(table, 1e-12, None)) - np.log(np.clip(1 - table, 1e-12, None))
    betas = 1 - table[1:] / np.clip(table[:-1], 1e-12, None)
    return {
        checks.SCHEDULE_BETAS_FALLING: float((np.diff(betas) < -1e-9).mean()) if len(betas) > 1 else 0.0,
        checks.SCHEDULE_RISING: float((steps > 1e-9).mean()) if len(steps) else 0.0,
        checks.SCHEDULE_FIRST: float(table[0]),
        checks.SCHEDULE_LAST: float(table[-1]),
        checks.SCHEDULE_OUTSIDE: float(((table < 0) | (table > 1)).mean()),
        checks.SCHEDULE_LARGEST_JUMP: float(np.abs(np.diff(log_snr)[:-1]).max()) if len(table) > 2 else 0.0,
        checks.SCHEDULE_EPSILON: float(prediction == "epsilon"),
        checks.SCHEDULE_TIMESTEPS: float(len(table)),
        checks.SCHEDULE_UNCUMULATED: float(is_uncumulated(table)),
    }


def is_uncumulated(table: np.ndarray) -> bool:
    """Whether these are alphas = 1 − betas: near 1 until late, with betas that at most double in the second half or
    leap at the very end, and a product as a usual alphas_cumprod has it. That itself falls below 0.85 by the middle, or
    bends: 1 − ᾱ grows more than threefold in the second half."""
    if len(table) < 10 or not ((table > 0) & (table < 1)).all() or (np.diff(table) > 1e-9).any():
        return False
    middle, late, last = (float(table[place]) for place in (len(table) // 2, 9 * len(table) // 10, -1))
    halfway, whole = float(table[: len(table) // 2].prod()), float(table.prod())
    is_product_usual = HALFWAY[0] < halfway < HALFWAY[1] and whole < ENDED
    is_straight = 1 - last < STRAIGHT * (1 - middle)
    return middle > NEAR_ONE and is_product_usual and (is_straight or (last < 0.5 and late > LATE))


def measure_adapters(model: nn.Module) -> dict[str, float]:
    """For a network with adapters of low rank: how much else is trained, and how many of them are off for good: where
    both matrices are 0 neither has a gradient."""
    named = [(name, p, _has_name(name)) for name, p in model.named_parameters()]
    adapters = [(name, p) for name, p, is_adapter in named if is_adapter and p.dim() > 1]
    if not adapters:
        return {}
    base = [p for _, p, is_adapter in named if not is_adapter]
    pairs: dict[str, list[bool]] = {}
    for name, p in adapters:  # …lora_A.weight and …lora_B.weight, or …lora_down and …lora_up
        place = next(i for i, part in enumerate(name.split(".")) if any(word in part.lower() for word in ADAPTERS))
        piece = local_of(p.detach())
        pairs.setdefault(".".join(name.split(".")[:place]), []).append(bool(piece.any()) or not piece.numel())
    return {
        checks.ADAPTER_BASE_TRAINED: _share((p for p in base if p.requires_grad), base),
        checks.ADAPTER_DEAD: sum(not any(each) for each in pairs.values()) / len(pairs),
    }


def measure_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, also_held: frozenset[int] = frozenset()
) -> dict[str, float]:
    """Parameters by identity: those of the model that the optimizer lacks, and those that are not the model's.
    `also_held`: ids of those that other optimizers hold, which it may lack."""
    groups = optimizer.param_groups
    held = [p for group in groups for p in group["params"]]
    ours, held_ids = {id(p) for p in model.parameters()}, {id(p) for p in held} | also_held
    trained = [p for p in model.parameters() if p.requires_grad]
    frozen = [p for _, p in _frozen(model) if id(p) in held_ids]
    adapters = trained_adapters(model)
    missing = {checks.ADAPTER_MISSING: _share((p for p in adapters if id(p) not in held_ids), adapters)}
    readings: dict[str, float] = {} if not adapters else {**missing}
    return readings | {
        checks.OPTIMIZER_MISSING: _share((p for p in trained if id(p) not in held_ids), trained),
        checks.OPTIMIZER_FOREIGN: _share((p for p in held if id(p) not in ours), held),
        checks.OPTIMIZER_TWICE: float(len(held) - len({id(p) for p in held})),
        checks.OPTIMIZER_FROZEN: _share(frozen, model.parameters()),
        checks.OPTIMIZER_MAXIMIZE: float(any(group.get("maximize", False) for group in groups)),
        checks.OPTIMIZER_RATE: max((float(group.get("lr", np.nan)) for group in groups), default=float("nan")),
        checks.OPTIMIZER_WEIGHT_DECAY: max((float(g.get("weight_decay", 0.0) or 0.0) for g in groups), default=0.0),
        checks.OPTIMIZER_HALF_WEIGHTS: _share((p for p in trained if torch.finfo(p.dtype).bits < 32), trained),
        checks.OPTIMIZER_ADAPTIVE: float(any("exp_avg_sq" in str(k) or "betas" in g for g in groups for k in g)),
    }


def trained_adapters(model: nn.Module) -> list[nn.Parameter]:
    """By their names, or by the class of the module that they are in: beside frozen weights or far larger ones."""
    found = {id(p): p for name, p in model.named_parameters() if p.requires_grad and _has_name(name)}
    for module in model.modules():
        if module is not model and _has_name(type(module).__name__):
            inside = [p for p in module.parameters() if p.dim() > 1]
            is_beside = not all(p.requires_grad for p in inside)
            largest = max((p.numel() for p in inside), default=0)
            found |= {id(p): p for p in inside if p.requires_grad and (is_beside or SMALLER * p.numel() <= largest)}
    return list(found.values())


def _has_name(name: str) -> bool:
    return any(word in name.lower() for word in ADAPTERS)


def unmatched_parameters(
    model: nn.Module, optimizer: torch.optim.Optimizer, also_held: frozenset[int] = frozenset()
) -> dict[str, list[str]]:
    """The names of trainable ones that the optimizer does not hold, and of frozen ones that it does."""
    held_ids = {id(p) for group in optimizer.param_groups for p in group["params"]} | also_held
    named = list(model.named_parameters())
    return {
        "missing": [name for name, p in named if p.requires_grad and id(p) not in held_ids],
        "frozen": [name for name, p in _frozen(model) if id(p) in held_ids],
    }


def measure_resume(
    step: int, optimizer: torch.optim.Optimizer | None, ema: list[Tensor] | None, weights: list[nn.Parameter]
) -> dict[str, float]:
    """What a loop that was resumed has brought with it."""
    readings: dict[str, float] = {checks.RESUME_STEP: float(step)}
    if optimizer is not None:
        seen = [float(state["step"]) for state in optimizer.state.values() if "step" in state]
        keeps_moments = any(group.get("momentum") or "betas" in group for group in optimizer.param_groups)
        if keeps_moments:  # plain SGD has no state to lose
            readings[checks.RESUME_OPTIMIZER] = max(seen, default=float(step if optimizer.state else 0))
    if ema is not None and len(ema) == len(weights):
        readings[checks.RESUME_COPIED] = float(all(map(torch.equal, ema, map(local_of, weights))))
    return readings


class FrozenWeights:
    """A few numbers of every weight that is not trained, as they were at first: nothing may change them."""

    def __init__(self, model: nn.Module) -> None:
        frozen = [p for p in model.parameters() if not p.requires_grad and p.numel()]
        self._kept = [(p, self._some(p).clone()) for p in frozen[:: max(1, len(frozen) // SAMPLED_TENSORS)]]

    def were_changed(self) -> bool:
        return any(not torch.equal(self._some(p), kept) for p, kept in self._kept if not p.requires_grad)

    @staticmethod
    def _some(parameter: Tensor) -> Tensor:
        flat = local_of(parameter.detach()).reshape(-1)
        return flat[:: max(1, len(flat) // SAMPLED_NUMBERS)]


def _frozen(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Weights of layers that require no gradient. A parameter of a module's own, such as the position embedding of DiT
    or random Fourier features, is a constant by design; and where adapters train, the rest is frozen on purpose."""
    if is_adapted(model):
        return []
    owners = {
        f"{name}.{each}".lstrip("."): module
        for name, module in model.named_modules()
        for each, _ in module.named_parameters(recurse=False)
    }
    return [(name, p) for name, p in model.named_parameters() if not p.requires_grad and _is_layer(owners.get(name))]


def _is_layer(module: nn.Module | None) -> bool:
    return module is not None and type(module).__module__.startswith("torch.nn")


def is_adapted(model: nn.Module) -> bool:
    """Whether adapters of low rank, by their usual names, are trained beside a network that is not."""
    named = list(model.named_parameters())
    adapters = [p for name, p in named if p.requires_grad and _has_name(name)]
    others = [p for name, p in named if not _has_name(name)]
    return bool(adapters) and not all(p.requires_grad for p in others)


def _share(part: Iterable[Tensor], whole: Iterable[Tensor]) -> float:
    return float(sum(p.numel() for p in part)) / max(1.0, float(sum(p.numel() for p in whole)))
