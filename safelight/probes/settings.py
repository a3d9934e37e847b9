"""What is known before anything is computed: the schedule, and what the optimizer holds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from safelight import checks
from safelight.config.tree import Prediction


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
    }


def measure_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Parameters by identity: those of the model that the optimizer lacks, and those that are not the model's."""
    groups = optimizer.param_groups
    held = [p for group in groups for p in group["params"]]
    ours, known = {id(p) for p in model.parameters()}, {id(p) for p in held}
    trained = [p for p in model.parameters() if p.requires_grad]
    frozen = [p for p in model.parameters() if not p.requires_grad and id(p) in known]
    return {
        checks.OPTIMIZER_MISSING: _share((p for p in trained if id(p) not in known), trained),
        checks.OPTIMIZER_FOREIGN: _share((p for p in held if id(p) not in ours), held),
        checks.OPTIMIZER_TWICE: float(len(held) - len(known)),
        checks.OPTIMIZER_FROZEN: _share(frozen, model.parameters()),
        checks.OPTIMIZER_MAXIMIZE: float(any(group.get("maximize", False) for group in groups)),
        checks.OPTIMIZER_RATE: max((float(group.get("lr", np.nan)) for group in groups), default=float("nan")),
        checks.OPTIMIZER_WEIGHT_DECAY: max((float(g.get("weight_decay", 0.0) or 0.0) for g in groups), default=0.0),
        checks.OPTIMIZER_HALF_WEIGHTS: _share((p for p in trained if torch.finfo(p.dtype).bits < 32), trained),
        checks.OPTIMIZER_ADAPTIVE: float(any("exp_avg_sq" in str(k) or "betas" in g for g in groups for k in g)),
    }


def unmatched_parameters(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, list[str]]:
    """The names of trainable ones that the optimizer does not hold, and of frozen ones that it does."""
    known = {id(p) for group in optimizer.param_groups for p in group["params"]}
    named = list(model.named_parameters())
    return {
        "missing": [name for name, p in named if p.requires_grad and id(p) not in known],
        "frozen": [name for name, p in named if not p.requires_grad and id(p) in known],
    }


def _share(part: Iterable[Tensor], whole: Iterable[Tensor]) -> float:
    return float(sum(p.numel() for p in part)) / max(1.0, float(sum(p.numel() for p in whole)))
