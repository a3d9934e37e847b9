"""The processes behind diffusers' schedulers, and behind whatever else a loop declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from safelight.checks import PREDICTIONS
from safelight.diffusion import time_mappings
from safelight.diffusion.process import HIGHEST_SIGMA, LOWEST_SIGMA, Process
from safelight.diffusion.time_mappings import TimeMapping
from safelight.diffusion.time_units import timed
from safelight.errors import UsageError
from safelight.words import first_line, with_article

ACCEPTED_PROCESSES = (
    "a diffusers scheduler, a tensor of alphas_cumprod, a safelight.Process, or a pair of functions (a, s) of t, as in "
    "x_t = a(t)·x0 + s(t)·noise"
)
HIGHEST_LINEAR_BETA = 0.1  # the usual ones end at 0.012 to 0.02; alphas_cumprod in reverse end near 1
OF_SIGMAS = ("Euler", "Heun", "LMS", "KDPM2", "DPMSolverSDE")  # whose x_t is x0 + σ·noise, and whose input is scaled


@dataclass(frozen=True, slots=True)
class Family:
    """A process whose time may be written in several ways; which one a loop uses is seen when it trains."""

    name: str
    """flow, vp or ve."""
    clocks: tuple[TimeMapping, ...]
    ends: tuple[float, float]
    """The least and the largest share of noise."""
    sigma_data: float | None = None
    """That of EDM's input."""
    told: TimeMapping | None = None
    """What samplers of it tell a network; None: the first of the clocks."""

    def usual(self) -> Process:
        """In the first of its times."""
        return timed(self.name, self.clocks[0], self.told, sigma_data=self.sigma_data, ends=self.ends)


@dataclass(frozen=True, slots=True)
class Declaration:
    """What was declared, as far as it goes: exactly one of the first three."""

    alphas: Tensor | None = None
    """alphas_cumprod, float64 on the host."""
    process: Process | None = None
    family: Family | None = None
    prediction: str | None = None
    """What samplers of it take."""
    any_scale: bool = False
    """x_t may be scaled: schedulers with σ scale it on its way into the network."""


def declaration_of(given: Any) -> Declaration:
    """What a scheduler, a table, a Process or two functions declare; anything else is refused in words."""
    if isinstance(given, Process):
        return Declaration(process=given)
    if isinstance(given, tuple | list) and len(given) == 2 and all(map(callable, given)):
        return Declaration(process=_process_of_functions(*given))
    if isinstance(given, Tensor | np.ndarray | list | tuple):
        return Declaration(alphas_of_table(given))
    config = getattr(given, "config", None)
    settings: Mapping[str, Any] = config if isinstance(config, Mapping) else {}
    name, kind = type(given).__name__, settings.get("prediction_type")
    if name.startswith("FlowMatch") or settings.get("use_flow_sigmas") or kind == "flow_prediction":
        return _flow(settings)
    if settings.get("sigma_data") is not None and settings.get("sigma_max") is not None:
        return _edm(settings)
    if (table := getattr(given, "alphas_cumprod", None)) is not None:
        prediction = kind if kind in ("epsilon", "sample", "v_prediction") else None
        return Declaration(alphas_of_table(table), prediction=prediction, any_scale=name.startswith(OF_SIGMAS))
    if settings.get("sigma_max") is not None:  # ScoreSdeVe
        ends = _ends(settings)
        return Declaration(
            family=Family("ve", time_mappings.OF_SIGMA, ends), prediction="score" if "SdeVe" in name else None
        )
    raise UsageError(
        f"This is {with_article(name)}, which says nothing of a(t) and s(t): it has no alphas_cumprod and no sigmas. "
        f"Give {ACCEPTED_PROCESSES}."
    )


def _flow(settings: Mapping[str, Any]) -> Declaration:
    """The shift of a scheduler changes which times are visited; a time means the same noise with and without."""
    steps = float(settings.get("num_train_timesteps") or 1000)
    if settings.get("invert_sigmas"):
        return Declaration(
            family=Family("flow", (time_mappings.falling(), time_mappings.falling(steps)), (0.0, 1.0)),
            prediction="reverse_flow",
        )
    candidates = (time_mappings.linear(), time_mappings.linear(steps))
    return Declaration(family=Family("flow", candidates, (0.0, 1.0), told=candidates[1]), prediction="flow")


def _edm(settings: Mapping[str, Any]) -> Declaration:
    candidates = (*time_mappings.OF_SIGMA, time_mappings.angle(), time_mappings.logarithm(250.0, "t = 250·log(sigma)"))
    family = Family("ve", candidates, _ends(settings), float(settings["sigma_data"]), time_mappings.QUARTER_LOG_SIGMA)
    return Declaration(family=family, prediction="edm" if settings.get("prediction_type") == "epsilon" else None)


def _ends(settings: Mapping[str, Any]) -> tuple[float, float]:
    low = float(settings.get("sigma_min") or LOWEST_SIGMA)
    high = float(settings.get("sigma_max") or HIGHEST_SIGMA)
    return low / (1 + low), high / (1 + high)


def alphas_of_table(table: Any) -> Tensor:
    """[timesteps] float64 on the host."""
    try:
        alphas = torch.as_tensor(table).detach().double().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"A process or schedule should be {ACCEPTED_PROCESSES}.") from error
    if alphas.ndim != 1 or len(alphas) < 2 or not ((alphas >= 0) & (alphas <= 1)).all():
        numbers = f" and numbers from {alphas.min():g} to {alphas.max():g}" if alphas.numel() else ""
        raise UsageError(
            f"A table should be alphas_cumprod: one number between 0 and 1 for each timestep. It has the shape "
            f"{tuple(alphas.shape)}{numbers}."
        )
    if alphas[-1] > alphas[0] and alphas.max() < HIGHEST_LINEAR_BETA:
        raise UsageError(
            f"These numbers rise from {alphas[0]:g} to {alphas[-1]:g}: they look like betas. A table should be "
            "alphas_cumprod: torch.cumprod(1 - betas, 0)."
        )
    return alphas


def _process_of_functions(signal_scale: Callable[..., Any], noise_scale: Callable[..., Any]) -> Process:
    trial = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)

    def checked(name: str, function: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
        try:
            found = torch.as_tensor(function(trial), dtype=torch.float64)
        except Exception as error:
            reason = first_line(error)
            raise UsageError(
                f"{name}(t) cannot be computed for t = 0.25, 0.5, 0.75 ({type(error).__name__}: {reason}). The "
                "functions of process=(a, s) get a float64 tensor of times and return as many numbers."
            ) from error
        if found.shape not in (trial.shape, torch.Size([])) or not found.isfinite().all() or (found < 0).any():
            raise UsageError(
                f"{name}(t) of t = 0.25, 0.5, 0.75 is {found.tolist()}: the functions of process=(a, s) return a "
                "number of at least 0 for each time."
            )
        return lambda t: torch.as_tensor(function(t), dtype=t.dtype, device=t.device).expand(t.shape)

    return Process(checked("a", signal_scale), checked("s", noise_scale))


WORDS = {
    "eps": "epsilon",
    "noise": "epsilon",
    "x0": "sample",
    "x_0": "sample",
    "x_start": "sample",
    "v": "v_prediction",
    "flow_prediction": "flow",
    "flow_matching": "flow",
    "rectified_flow": "flow",
    "noise - x0": "flow",
    "x0 - noise": "reverse_flow",
    "-flow": "reverse_flow",
    "f": "edm",
}
"""What others call a prediction."""


def prediction_of(word: str | None) -> str | None:
    """The prediction of a name, in our words or those of others."""
    if word is None:
        return None
    name = word.strip().lower().replace("−", "-") if isinstance(word, str) else ""
    name = WORDS.get(name, name)
    if name not in PREDICTIONS:
        raise UsageError(
            f"prediction is {word!r}. Use {', '.join(PREDICTIONS[:-1])} or {PREDICTIONS[-1]}, or leave it out. flow is "
            "noise − x0, reverse_flow is x0 − noise."
        )
    return name
