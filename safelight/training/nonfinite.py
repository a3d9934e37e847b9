"""Updates that are not finite: counted, recorded, traced to the first module, and the end of a run of them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from safelight.config import Config
from safelight.diffusion.inputs import Inputs
from safelight.errors import Stopped
from safelight.monitors.modules import NAMED
from safelight.observing.recorder import Recorder
from safelight.observing.step_view import StepView
from safelight.processes.group import ProcessGroup
from safelight.training.scaling import LOWEST
from safelight.training.step import Stepper

NOWHERE = "nothing in the replay of the step: it did not happen again with the weights as they are now"


class FiniteGuard:
    """Judges every step that was read back; the refusal itself happened on the device, inside the step."""

    def __init__(self, config: Config, stepper: Stepper, record: Recorder) -> None:
        self._config, self._stepper, self._record = config, stepper, record
        self.overflowed = False  # at the step that was judged last

    def judge(self, view: StepView, *, refused: bool) -> str | None:
        """Counts a refusal. Returns where the first non-finite value appeared once there were too many in a row."""
        counters, self.overflowed = self._stepper.state.counters, False
        if not refused:
            counters.refused_in_row = 0
            return None
        counters.refused += 1
        overflow = self.overflowed = self._is_overflow(view)
        names = self._stepper.state.monitors.parts.nonfinite(view.norms)
        gradients = {"nonfinite_gradients": names[:NAMED], "nonfinite_count": len(names)}
        inputs = describe_inputs(view.inputs, self._stepper.group)
        self._record.event(view.step, "refused", overflow=overflow, **gradients, **inputs)
        if overflow:
            return None
        counters.refused_in_row += 1
        if counters.refused_in_row < self._config.train.max_refused:
            return None
        where = self._find(view, names)
        self._record.event(view.step, "stopped", first_nonfinite=where)
        return where

    def _find(self, view: StepView, names: list[str]) -> str:
        """By the step once more, unless that takes all processes: each may find its own end, and others wait."""
        if self._stepper.state.weights.shard is None:
            return find_first_nonfinite(self._stepper, view.inputs, view.step)
        if not names:
            return "the loss (divided weights: where it began is not looked for)"
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return f"the gradient of {names[0]}{more} (divided weights: where it began is not looked for)"

    def _is_overflow(self, view: StepView) -> bool:
        """fp16 looking for its scale: the update is refused, the scale halved, and nothing is wrong."""
        fp16 = self._stepper.engine.precision == "fp16"
        return fp16 and bool(view.loss.isfinite().all()) and float(view.scale) > LOWEST

    def stopped(self, view: StepView, where: str) -> Stopped:
        row = self._stepper.state.counters.refused_in_row
        return Stopped(
            f"Stopped at step {view.step}: {row} updates in a row were not finite. The first non-finite value appeared "
            f"in {where}. The weights are those of before, and saved. The usual cures: a lower --lr (now "
            f"{self._config.optimizer.lr:g}), --precision bf16 instead of fp16, a longer optimizer.warmup."
        )


def find_first_nonfinite(stepper: Stepper, inputs: Sequence[Inputs], step: int) -> str:
    """One phrase, such as "the output of mid_block.attentions.0". Exact, because nothing random has state
    and a refused update leaves the weights as they were. Each process looks at its own share of the batch."""
    told = stepper.group.all_gather_object(_find_here(stepper, inputs, step))
    rank = next((rank for rank, where in enumerate(told) if where != NOWHERE), 0)
    return told[rank] + (f" on process {rank}" if len(told) > 1 and told[rank] != NOWHERE else "")


def _find_here(stepper: Stepper, inputs: Sequence[Inputs], step: int) -> str:
    model = stepper.state.model
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"the weights of {name}"
    for micro in inputs:
        found = _in_inputs(micro) or _in_pass(stepper, micro, step)
        if found:
            return found
    return NOWHERE


def describe_inputs(inputs: Sequence[Inputs], group: ProcessGroup) -> dict[str, object]:
    """What went into the step on all processes, for the record."""
    told = group.all_gather_object(_describe_here(inputs))
    joined: dict[str, object] = {name: [x for each in told for x in each[name]] for name in ("samples", "timesteps")}
    for name, choose in (("min", min), ("max", max), ("mean", fmean), ("std", fmean)):  # shares are equally large
        joined[f"image_{name}"] = choose([each[f"image_{name}"] for each in told])
    return joined


def _describe_here(inputs: Sequence[Inputs]) -> dict[str, Any]:
    images = torch.cat([micro.x0 for micro in inputs]).float()
    return {
        "samples": [int(i) for micro in inputs for i in micro.ids],
        "timesteps": [int(t) for micro in inputs for t in micro.t],
        "image_min": float(images.min()),
        "image_max": float(images.max()),
        "image_mean": float(images.mean()),
        "image_std": float(images.std()),
    }


def _in_inputs(micro: Inputs) -> str | None:
    for name, value in (("images", micro.x0), ("noise", micro.noise)):
        if not value.isfinite().all():
            return f"the input {name}"
    return None


def _in_pass(stepper: Stepper, micro: Inputs, step: int) -> str | None:
    """Replays forward and backward of one micro-batch, reading every output on the host: slow, and only here."""
    model, found = stepper.state.model, list[str]()

    def watch_output(name: str):
        def hook(_: nn.Module, __: object, output: object) -> None:
            if not found and isinstance(output, Tensor) and not output.isfinite().all():
                found.append(f"the output of {name}")

        return hook

    def watch_gradient(name: str):
        def hook(parameter: Tensor) -> None:
            if not found and parameter.grad is not None and not parameter.grad.isfinite().all():
                found.append(f"the gradient of {name}")

        return hook

    leaves = [(n, m) for n, m in model.named_modules() if not list(m.children())]
    hooks = [module.register_forward_hook(watch_output(name or "the model")) for name, module in leaves]
    hooks += [
        p.register_post_accumulate_grad_hook(watch_gradient(n)) for n, p in model.named_parameters() if p.requires_grad
    ]
    try:
        noised, answer = stepper.forward(micro, step)
        _, weighted = stepper.objective.loss(answer, noised)
        if not found and not answer.isfinite().all():
            found.append("the output of the model")
        if not found and not weighted.isfinite().all():
            found.append("the loss")
        if not found:
            (weighted.sum() * (stepper.state.scale.scale / stepper.config.train.batch_size)).backward()
    finally:
        for hook in hooks:
            hook.remove()
        stepper.state.optimizer.zero_grad(set_to_none=True)
    return found[0] if found else None
