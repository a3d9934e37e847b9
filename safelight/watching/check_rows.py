"""The rows of a check: numbers of the model's own outputs, and readings of the trial steps under plain names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from safelight import checks
from safelight.checks import ProbeReading
from safelight.diagnosis.run_history import LEARNING_ERROR_SHARE, name_of
from safelight.errors import UsageError
from safelight.generate import evaluation_mode
from safelight.model.calls import call_model
from safelight.model.estimate import ModelEstimate, estimate
from safelight.probes.sampler import draw
from safelight.vocabulary import GRADIENT_PART
from safelight.watching.check_readings import TINY, rows_of_readings
from safelight.watching.check_report import Row
from safelight.watching.trial_steps import Series, Trial
from safelight.words import first_line

PLACES = (0.0, 0.1, 0.5, 0.9, 1.0)  # of the schedule: timesteps 0, 100, 500, 900 and 999 of a thousand
SAMPLES = 4
MAX_SAMPLE_REACH = 1.5  # times that of the images: samples of a trained model stay within


@dataclass(slots=True)
class Outputs:
    """Outputs of the model as it is, in evaluation mode."""

    shape: tuple[int, ...] = ()
    wanted: tuple[int, ...] = ()
    statistics: dict[str, float] = field(default_factory=dict)
    by_timestep: list[tuple[float, float, float, float, float]] = field(default_factory=list)
    """(t, mean, standard deviation, change from the first over its length, error over that of predicting 0)."""
    samples: dict[str, float] = field(default_factory=dict)
    failed: str = ""
    """Why the sampler gave none."""
    reach: float = 1.0


@torch.no_grad()
def observe_outputs(network: nn.Module, trial: Trial, sampler: Callable[..., Any] | None) -> Outputs:
    found, noised = Outputs(reach=max(1.0, float(trial.images.abs().max()))), trial.noised()
    with evaluation_mode(network):
        output = trial.answer(network, noised.shown, noised.told, trial.labels).float()
        found.shape, found.wanted = tuple(output.shape), tuple(noised.target.shape)
        found.statistics = _statistics(output)
        first: Tensor | None = None
        for place in PLACES:
            told = trial.told(trial.times(torch.full((len(noised.told),), place)).to(noised.told.device))
            answer = trial.answer(network, noised.shown, told, trial.labels).float()
            first = answer if first is None else first
            apart = (
                float((answer - first).norm() / first.norm().clamp(min=TINY)) if first.any() else float(answer.norm())
            )
            error = _error_at(network, trial, place)
            found.by_timestep.append((float(told[0]), float(answer.mean()), _deviation(answer), apart, error))
        if sampler is not None:
            noise = torch.randn((SAMPLES, *trial.images.shape[1:]), generator=trial.draw).to(trial.images.device)
            try:
                found.samples = _statistics(draw(sampler, network, noise).float())
            except Exception as error:  # whatever a foreign sampler does
                found.failed = f"{type(error).__name__}: {first_line(error, 120)}"
    return found


def _error_at(network: nn.Module, trial: Trial, place: float) -> float:
    """Of images with the noise of that timestep: the mean squared error over that of a model that predicts 0."""
    noised = trial.noised_at(place)
    answer, target = trial.answer(network, noised.shown, noised.told, trial.labels).float(), noised.target.float()
    if answer.shape != target.shape:
        return math.nan
    return float((answer - target).square().mean() / target.square().mean().clamp(min=TINY))


def _statistics(values: Tensor) -> dict[str, float]:
    finite = values[values.isfinite()]
    usable = finite if len(finite) else torch.zeros(1)
    return {
        "mean": float(usable.mean()),
        "standard deviation": _deviation(usable),
        "lowest": float(usable.min()),
        "highest": float(usable.max()),
        "NaN or infinite": 1 - len(finite) / max(1, values.numel()),
    }


def _deviation(values: Tensor) -> float:
    return float(values.std()) if values.numel() > 1 else 0.0


def trace_memory(
    model: nn.Module, images: Tensor, labels: bool, optimizer: torch.optim.Optimizer | None, call: Any
) -> ModelEstimate | str:
    """Or why it was not traced."""
    if call is not None and call is not call_model:
        return "the model is called in a way of its own"
    try:
        return estimate(model, tuple(images.shape), "adamw" if optimizer is None else optimizer, labels=labels)
    except UsageError as error:
        return str(error)[:120]


FINITE = (checks.NETWORK_FINITE, checks.NONFINITE["pred"], checks.NONFINITE["loss"])
SHAPES = (checks.NETWORK_SAME_SHAPE, checks.LOSS_SAME_SHAPE)


def rows_of(readings: Series, outputs: Outputs, memory: ModelEstimate | str, lacking: Mapping[str, str]) -> list[Row]:
    """All rows, part by part; `lacking` says of a part why it was not looked at."""
    rows = [
        *_output_rows(outputs),
        *_gradient_rows(readings),
        *_timestep_rows(outputs),
        *_sample_rows(readings, outputs),
    ]
    rows += rows_of_readings(lambda check: _first(readings, check))
    rows += [Row(part, "-", None, "not looked at", why) for part, why in lacking.items() if not _has(rows, part)]
    rows += _memory_rows(memory)
    order = list(dict.fromkeys(("output", "gradients", "timesteps", "labels", "schedule", "images", "samples",
                                "optimizer", "memory", *(row.part for row in rows))))  # fmt: skip
    return sorted(rows, key=lambda row: order.index(row.part))


def _has(rows: list[Row], part: str) -> bool:
    return any(row.part == part for row in rows)


def _first(readings: Series, check: ProbeReading) -> float | None:
    """At the earliest step, at which the model is still as it came."""
    numbers = readings.get(name_of(check), ([], []))[1]
    return float(numbers[0]) if numbers else None


def _output_rows(outputs: Outputs) -> list[Row]:
    shape = Row(
        "output", "shape", " × ".join(map(str, outputs.shape)), "ok" if outputs.shape == outputs.wanted else "finding",
        "" if outputs.shape == outputs.wanted else f"expected {' × '.join(map(str, outputs.wanted))}",
        tuple(map(name_of, SHAPES)),
    )  # fmt: skip
    rows = [Row("output", name, value) for name, value in outputs.statistics.items() if name != "NaN or infinite"]
    broken = outputs.statistics.get("NaN or infinite", 0.0)
    return [
        shape,
        *rows,
        Row("output", "share that is NaN or infinite", broken, "finding" if broken else "ok", "healthy: 0",
            tuple(map(name_of, FINITE))),
    ]  # fmt: skip


def _gradient_rows(readings: Series) -> list[Row]:
    """The norm of every part of the network, at the first step."""
    start = f"{GRADIENT_PART.name}/"
    parts = {name.removeprefix(start): numbers for name, (_, numbers) in readings.items() if name.startswith(start)}
    rows = []
    for name, numbers in parts.items():
        dead = () if numbers[0] else (name_of(checks.NETWORK_REACHED),)  # such a part is what that finding is about
        rows.append(Row("gradients", f"norm of {name}", float(numbers[0]), "ok", "", (f"{start}{name}", *dead)))
    return rows


def _timestep_rows(outputs: Outputs) -> list[Row]:
    return [
        Row(
            "timesteps",
            f"output at t = {t:.6g}",
            f"mean {mean:.3g}, deviation {deviation:.3g}, change {apart:.3g}, error {error:.3g} of predicting 0",
        )
        for t, mean, deviation, apart, error in outputs.by_timestep
    ]


def _sample_rows(readings: Series, outputs: Outputs) -> list[Row]:
    if outputs.failed:
        return [Row("samples", "of the model itself", None, "finding", f"the sampler failed: {outputs.failed}")]
    error, zero = _first(readings, checks.LOSS_MSE), _first(readings, checks.LOSS_ZERO_MSE)
    has_learnt = error is not None and zero is not None and error < LEARNING_ERROR_SHARE * zero
    limit = MAX_SAMPLE_REACH * outputs.reach
    rows = []
    for name, value in outputs.samples.items():
        beyond = name in ("lowest", "highest") and not -limit <= value <= limit
        note = f"healthy: within {limit:g}" if name in ("lowest", "highest") else ""
        if beyond:
            advice = "clamp x0 in the sampler, and check the prediction type" if has_learnt else "not judged: untrained"
            note = f"{note}; {advice}"
        broken = name == "NaN or infinite" and (value > 0 or math.isnan(value))
        state = "finding" if broken or (beyond and has_learnt) else "ok"
        rows.append(Row("samples", f"{name} of the model's own", value, state, note))
    return rows


def _memory_rows(memory: ModelEstimate | str) -> list[Row]:
    if isinstance(memory, str):
        return [Row("memory", "-", None, "not looked at", memory)]
    megabytes = {
        name: getattr(memory.memory, name) / 1e6 for name in ("parameters", "optimizer", "activations", "peak")
    }
    rows = [Row("memory", f"{name} of a step, MB", value) for name, value in megabytes.items()]
    note = f"{memory.available / 1e6:,.0f} MB are available"
    rows[-1] = Row("memory", rows[-1].name, rows[-1].value, "ok" if memory.fits else "finding", note)
    return rows
