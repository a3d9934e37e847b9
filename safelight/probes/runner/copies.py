"""What is measured with copies of the weights: an update, replays of its step, and the network on the first batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from safelight import checks
from safelight.model.memory import available_memory
from safelight.monitors.parameters import trainable_parameters
from safelight.probes.conditions import exchange_conditions
from safelight.probes.forward_pass import NARROW_TIME_RANGE, STEP, ForwardPass, ProcessSpec, Repeats
from safelight.probes.network import measure_network
from safelight.probes.replay import measure_labels, measure_responses, replay_gradient, search_line
from safelight.probes.runner.guard import ProbeGuard
from safelight.probes.runner.inspected_loop import InspectedLoop
from safelight.probes.update import StateBefore, measure_update

COPIES = 6  # times the weights: what a replay holds for the length of a step
COPY_COST = 0.4  # of a step: copies of weights and optimizer, and an update of the copies
SMALL = 64_000_000  # bytes of weights that there is always room to copy


class ReplayProbe:
    """Waits for the device."""

    def __init__(self, subject: InspectedLoop, guard: ProbeGuard) -> None:
        self._subject, self._guard = subject, guard
        self._named, self._repeats = trainable_parameters(subject.model), Repeats(subject.model)
        self._size = sum(p.numel() * p.element_size() for _, p in self._named)

    def has_room(self) -> bool:
        if self._subject.sharded:
            return False
        return self._size < SMALL or available_memory(self._subject.device) > COPIES * self._size

    def measure_update(self, before: StateBefore) -> dict[str, float]:
        return self._guard.measure("update", measure_update, before, self._named)

    def replay(
        self,
        before: StateBefore,
        passes: Sequence[ForwardPass],
        previous: Mapping[str, Tensor | None] | None,
        sample_gradient: Tensor,
    ) -> dict[str, float]:
        """`previous`: the gradients of the step before; `sample_gradient`: the norm of that of one parameter."""
        readings = self._guard.measure("replay", replay_gradient, self._begin(), before, passes, previous)
        return readings | ({checks.REPLAY_SAMPLE_GRADIENT: float(sample_gradient)} if readings else {})

    def search(self, before: StateBefore, last: ForwardPass) -> dict[str, float]:
        given = self._begin(), before, last
        readings = self._guard.measure("search", search_line, *given)
        readings |= self._guard.measure("labels", measure_labels, *given)
        readings |= self._guard.measure("response", measure_responses, *given)
        return readings | self._guard.measure("conditions", exchange_conditions, *given)

    def _begin(self) -> Repeats:
        self._repeats = Repeats(self._subject.model)
        return self._repeats

    def cost_in_steps(self, passes: Sequence[ForwardPass]) -> float:
        """What the newest replay or search has taken, in steps of the loop."""
        return COPY_COST + self._repeats.passes / (STEP * max(1, sum(map(_count, passes))))

    def measure_network(
        self, micro_batch: ForwardPass, declared: ProcessSpec, old: Mapping[str, Tensor]
    ) -> dict[str, float]:
        """`old`: the weights before the update, where they are known."""
        given = self._subject.model, micro_batch, declared.timesteps, old
        readings = self._guard.measure("network", measure_network, *given)
        if declared.tells_little or _tells_little(micro_batch, declared):
            readings.pop(checks.NETWORK_TIME_COLLISION, None)
        return readings


def _count(passed: ForwardPass) -> int:
    """Samples of a micro-batch."""
    return len(passed.input) if passed.input is not None and passed.input.dim() else passed.loss.numel()


def _tells_little(micro_batch: ForwardPass, declared: ProcessSpec) -> bool:
    """Whether times are t in [0, 1], σ or log σ, which hardly differ: networks learn from them all the same. Not where
    the loop has times up to 1,000 and tells the network a fraction."""
    told = None if micro_batch.call is None else micro_batch.call.t
    if told is None or declared.timesteps is not None or not told.is_floating_point():
        return False
    own = told if micro_batch.t is None else micro_batch.t
    return float(told.max() - told.min()) < NARROW_TIME_RANGE and float(own.max() - own.min()) < NARROW_TIME_RANGE**2
