"""What happens after an update was refused: count it, record it, and stop a run that cannot go on."""

from __future__ import annotations

from safelight.config import Config
from safelight.errors import Stopped
from safelight.monitors.modules import NAMED
from safelight.observing.recorder import Recorder
from safelight.observing.step_view import StepView
from safelight.training.first_nonfinite import describe_inputs, find_first_nonfinite
from safelight.training.scaling import LOWEST
from safelight.training.step import Stepper


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
