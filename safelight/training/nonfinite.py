"""Updates that are not finite: counted, recorded, traced to the first module."""

from __future__ import annotations

from collections.abc import Sequence

from safelight.diffusion.micro_batch import MicroBatch
from safelight.errors import Stopped
from safelight.healing.step_settings import effective_settings
from safelight.monitors.finite import NonfiniteSearch, nonfinite_weights
from safelight.monitors.parameters import MAX_NAMES_IN_EVENT
from safelight.observing.batch_evidence import REFUSED, REFUSED_FILE, ReplayedPass, describe_inputs, show
from safelight.observing.observer import StepResult
from safelight.observing.recorder import Recorder
from safelight.run import RunFolder
from safelight.training.step import Stepper

NOWHERE = "nothing in the replay of the step: it did not happen again with the weights as they are now"


def record_refusal(
    stepper: Stepper, record: Recorder, view: StepResult, *, overflow: bool, folder: RunFolder | None = None
) -> str | None:
    """Counts and records a refused update, which the device itself refused inside the step. Returns where the first
    non-finite value appeared once there were too many in a row. `overflow`: of a loss scale, which is not a fault.
    `folder`: where its batch is drawn, if it is to be."""
    counters = stepper.state.counters
    counters.refused += 1
    names = stepper.state.monitors.parts.nonfinite(view.norms)
    facts: dict[str, object] = {"nonfinite_gradients": names[:MAX_NAMES_IN_EVENT], "nonfinite_count": len(names)}
    facts |= describe_inputs(view.inputs, stepper.group)
    if folder is not None and not overflow and stepper.state.weights.shard is None:
        facts |= _show(stepper, record, view, folder)
    record.event(view.step, "refused", overflow=overflow, **facts)
    if overflow:
        return None
    counters.refused_in_row += 1
    if counters.refused_in_row < stepper.config.train.max_refused:
        return None
    where = _find(stepper, view, names)
    record.event(view.step, "stopped", first_nonfinite=where)
    return where


def _show(stepper: Stepper, record: Recorder, view: StepResult, folder: RunFolder) -> dict[str, object]:
    """The answers of the network are computed again, by weights that are those of the step: exact where every step is
    judged at once, as on a CPU, else a window later."""
    settings = effective_settings(stepper.config, stepper.state.journal.acts, view.step)

    def replay() -> list[ReplayedPass]:
        again = stepper.predict_again(view.inputs, view.step, settings)
        return [
            ReplayedPass(micro, noised.x_t, answer) for micro, (noised, answer) in zip(view.inputs, again, strict=True)
        ]

    path = folder.picture(view.step + 1, REFUSED_FILE)  # pictures are numbered by the steps that are done
    facts = show(replay, stepper.group, path, folder.disk)
    if "picture" in facts:
        record.picture(view.step + 1, REFUSED, path)
    return facts


def _find(stepper: Stepper, view: StepResult, names: list[str]) -> str:
    """By replaying the step, unless that takes all processes: each may fail elsewhere, and the others would wait."""
    if bool(view.norm.isfinite() & view.loss.isfinite().all()):
        return f"the update itself: with a learning rate of {view.lr:g}, weights or moments would leave float32"
    if stepper.state.weights.shard is None:
        return find_first_nonfinite(stepper, view.inputs, view.step)
    if not names:
        return "the loss (divided weights: where it began is not looked for)"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"the gradient of {names[0]}{more} (divided weights: where it began is not looked for)"


def stopped(stepper: Stepper, step: int, where: str) -> Stopped:
    return Stopped(
        f"Stopped at step {step}: {stepper.state.counters.refused_in_row} updates in a row were not finite. The first "
        f"non-finite value appeared in {where}. The weights are those from before, and saved. The usual fixes: a lower "
        f"--lr (now {stepper.config.optimizer.lr:g}), --precision bf16 instead of fp16, a longer optimizer.warmup.",
        finding=f"non-finite: {where}",
    )


def find_first_nonfinite(stepper: Stepper, inputs: Sequence[MicroBatch], step: int) -> str:
    """Such as "the output of mid_block.attentions.0". Exact, because nothing random has state and a refused update
    leaves the weights as they were. Each process checks its own share of the batch."""
    found = stepper.group.all_gather_object(_find_here(stepper, inputs, step))
    rank = next((rank for rank, where in enumerate(found) if where != NOWHERE), 0)
    return found[rank] + (f" on process {rank}" if len(found) > 1 and found[rank] != NOWHERE else "")


def _find_here(stepper: Stepper, inputs: Sequence[MicroBatch], step: int) -> str:
    if found := nonfinite_weights(stepper.state.model.named_parameters()):
        return found
    for micro in inputs:
        if found := _in_pass(stepper, micro, step):
            return found
    return NOWHERE


def _in_pass(stepper: Stepper, micro: MicroBatch, step: int) -> str | None:
    """Replays forward and backward of one micro-batch."""
    try:
        with NonfiniteSearch(stepper.state.model) as search:
            search.check("the input images", micro.x0)
            search.check("the input noise", micro.noise)
            if search.found is None:
                step_settings = effective_settings(stepper.config, stepper.state.journal.acts, step)
                noised, prediction = stepper.forward(micro, step, step_settings)
                search.check("the output of the model", prediction)
                _, weighted = stepper.objective.loss(prediction, noised)
                search.check("the loss", weighted)
                if search.found is None:
                    stepper.backward(weighted)
    finally:
        stepper.state.optimizer.zero_grad(set_to_none=True)
    return search.found
