"""`safelight.check`: a model examined on a copy, in one call: outputs, gradients, responses, schedule, samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from safelight.diagnosis.doctor import diagnose_trial
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory
from safelight.diffusion.process import SIGMA_DATA, Process
from safelight.diffusion.schedulers import declaration_of, prediction_of
from safelight.errors import UsageError
from safelight.model.calls import call_model
from safelight.model.copies import copy_with_optimizer
from safelight.monitors.parameters import trainable_parameters, unwrapped
from safelight.probes.forward_pass import ProcessSpec
from safelight.probes.random_state import kept_random_state
from safelight.probes.sampler import accepts
from safelight.vocabulary import CHECK
from safelight.watching.check_report import CheckReport, with_findings
from safelight.watching.check_rows import observe_outputs, rows_of, trace_memory
from safelight.watching.foreign import bare_optimizer, refuse_sharded
from safelight.watching.trial_steps import Trial, take_trial_steps
from safelight.words import with_article

MAX_IMAGES = 32  # images of the batch
# The batch is shown several times, so repeats say nothing; without an optimizer, neither does the update of ours.
REPEATS = (f"{CHECK.name}/stream/",)
OF_OPTIMIZER = tuple(f"{CHECK.name}/{area}/" for area in ("optimizer", "search", "update", "sentinel"))
Call = Callable[[nn.Module, Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True, slots=True)
class DebugBatch:
    images: Tensor
    labels: Tensor | None


def check(
    model: nn.Module,
    process: Any = None,
    batch: Any = None,
    *,
    sampler: Callable[..., Any] | None = None,
    optimizer: Any = None,
    prediction: str | None = None,
    call: Call | None = None,
    memory: bool = True,
    seed: int = 0,
    say: Callable[[str], None] | None = print,
) -> CheckReport:
    """The debugger: what a model, its process and a batch look like before anything is trained, as a table of numbers.

    `process`: a diffusers scheduler, a tensor of alphas_cumprod, a safelight.Process or functions (a, s) of t.
    `batch`: images as the loop trains on them, or (images, labels). `sampler(model, noise)` is driven by a network that
    knows the answer, and by the model itself. `optimizer`: its groups, its rate and what an update does. `prediction`:
    as in `safelight.watch`; without it that of the scheduler, or epsilon. `call(model, x, t, labels)` for a model that
    is not called as model(x, t) or model(x, t, labels). `say` gets the table; None prints nothing.

    The same probes and rules as in the preflight of a run and under `safelight.watch`. A few steps are taken, on copies
    of model and optimizer: weights, gradients, buffers, modes and random states stay as they are.
    """
    refuse_sharded(model)
    model, inside = unwrapped(model), _batch_of(batch)
    if not (named_parameters := trainable_parameters(model)):
        raise UsageError("The model has no parameter that requires a gradient: there is nothing to train.")
    if sampler is not None and not accepts(sampler):
        raise UsageError("sampler should be a function of (model, noise) that returns samples.")
    declared = declare(process, prediction)
    bare = None if optimizer is None else bare_optimizer(optimizer)
    device = named_parameters[0][1].device
    images = inside.images[:MAX_IMAGES].to(device)
    labels = None if inside.labels is None else inside.labels[:MAX_IMAGES].to(device)
    with kept_random_state(device), torch.random.fork_rng():
        torch.manual_seed(seed)
        network, moved = _copies(model, bare)
        trial = Trial(images, labels, declared, call or call_model, torch.Generator().manual_seed(seed))
        with np.errstate(all="ignore"):
            outputs = observe_outputs(network, trial, sampler)
            readings, events, broken = take_trial_steps(network, moved, trial, sampler)
    kept = {name: each for name, each in readings.items() if not name.startswith(_dropped(bare is not None))}
    history = RunHistory(InMemoryReadings(kept, events))
    found = diagnose_trial(history)
    needed = trace_memory(model, images, labels is not None, bare, call) if memory else "left out: memory=False"
    rows = rows_of(kept, outputs, needed, _lacking(declared.process, inside, sampler, bare, broken))
    report = CheckReport(with_findings(rows, found.findings), found)
    if say is not None:
        say(str(report))
    return report


def declare(process: Any, prediction: str | None) -> ProcessSpec:
    """The prediction as it is given, or as the scheduler has it, or epsilon; times as the scheduler has them."""
    named = prediction_of(prediction)
    if process is None:
        return ProcessSpec(prediction=named or "epsilon")
    found = declaration_of(process)
    continuous = found.process if found.family is None else found.family.usual()
    sigma_data = None if found.family is None else found.family.sigma_data
    return ProcessSpec(
        found.alphas, named or found.prediction or "epsilon", continuous, sigma_data or SIGMA_DATA,
        any_scale=found.any_scale,
    )  # fmt: skip


def _batch_of(batch: Any) -> DebugBatch:
    if isinstance(batch, Mapping):
        images = next((batch[key] for key in ("images", "image", "pixel_values", "x0", "x") if key in batch), None)
        labels = next((batch[key] for key in ("labels", "label", "class_labels", "y") if key in batch), None)
    else:
        images, labels = (*batch, None)[:2] if isinstance(batch, tuple | list) else (batch, None)
    images = torch.as_tensor(images) if isinstance(images, Tensor | np.ndarray) else None
    if images is None or images.dim() < 2 or len(images) < 2:
        raise UsageError(
            "batch should be a tensor of at least two images as the loop trains on them, or (images, labels): "
            f"it is {with_article(type(batch).__name__)}."
            + (" Take one batch of it: next(iter(loader))." if isinstance(batch, DataLoader) else "")
        )
    if not images.is_floating_point():
        raise UsageError(
            f"The images of the batch are {images.dtype}. Pass them as the model is given them: as floats."
        )
    labels = torch.as_tensor(labels) if isinstance(labels, Tensor | np.ndarray) else None
    return DebugBatch(images.detach().float(), None if labels is None else labels.detach())


def _copies(
    model: nn.Module, optimizer: torch.optim.Optimizer | None
) -> tuple[nn.Module, torch.optim.Optimizer | None]:
    try:
        network, moved = copy_with_optimizer(model, optimizer)
    except Exception as error:
        raise UsageError(
            f"The model or the optimizer cannot be copied ({type(error).__name__}: {error}), and the check would "
            "change it. Check a model that `copy.deepcopy` can copy."
        ) from error
    return network, moved


def _dropped(has_optimizer: bool) -> tuple[str, ...]:
    return REPEATS if has_optimizer else (*REPEATS, *OF_OPTIMIZER)


def _lacking(
    process: Process | None, batch: DebugBatch, sampler: Any, optimizer: Any, broken: Mapping[str, str]
) -> dict[str, str]:
    """By part of the table: why it was not looked at."""
    found: dict[str, str] = {}
    for part, given, argument in (
        ("schedule", process, "process"), ("labels", batch.labels, "batch=(images, labels)"),
        ("samples", sampler, "sampler"), ("optimizer", optimizer, "optimizer"),
    ):  # fmt: skip
        if given is None:
            found[part] = f"pass {argument}"
    return found | {part: f"failed: {reason}" for part, reason in broken.items()}
