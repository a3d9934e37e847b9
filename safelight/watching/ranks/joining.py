"""Whether a process joins those that train with it: as the first one, which hears the others, or as a member."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from safelight.monitors.parameters import REPLICATED, is_of, named_without_wrappers, unwrapped
from safelight.watching.arguments import WatchArguments
from safelight.watching.foreign import bare_optimizer, ema_of
from safelight.watching.ranks.calls import OptimizerStepCounts
from safelight.watching.ranks.member import RankWorker
from safelight.watching.ranks.rank_channel import RankChannel, RankInfo, next_name, place_here
from safelight.watching.ranks.rank_monitor import trained_by
from safelight.watching.ranks.rank_zero import RankZero
from safelight.watching.silent_watch import NullWatch
from safelight.words import first_line


def join_as_first(
    given: WatchArguments,
    named: Sequence[tuple[str, nn.Parameter]],
    say_once: Callable[[str], None],
    calls: OptimizerStepCounts | None,
) -> RankZero | None:
    """None where the process is alone or the optimizer is not known."""
    place = place_here()
    if place is None or given.optimizer is None:
        return None
    optimizer = bare_optimizer(given.optimizer)
    try:
        line, made_before = _line(place, optimizer, calls)
        is_bound = any(_replicas(module) == place.size for module in given.model.modules())
        return RankZero(line, optimizer, named, say_once, made_before=made_before, is_bound=is_bound)
    except Exception as error:
        say_once(f"The other processes cannot be reached ({type(error).__name__}: {first_line(error)}).")
        return None


def join_as_member(given: WatchArguments) -> NullWatch:
    """Of a loop that calls `watch` on all processes."""
    place = place_here()
    if place is None or given.optimizer is None:
        return NullWatch()
    optimizer = bare_optimizer(given.optimizer)
    try:
        line, _ = _line(place, optimizer, None)
        return RankWorker(line, given.optimizer, read_ema=partial(_ema_in_order, given, optimizer))
    except Exception:  # the first process says that this one is silent
        return NullWatch()


class Members:
    """Of a script that knows nothing of it: one for each optimizer, from its first step on. None on the first process,
    which has but the calls in common with the others."""

    def __init__(self) -> None:
        self._members: list[RankWorker] = []
        self.calls = OptimizerStepCounts(self._join)

    def close(self) -> None:
        self.calls.close()
        while self._members:
            self._members.pop().close()

    def _join(self, optimizer: torch.optim.Optimizer) -> None:
        place = place_here()
        if place is None or place.rank == 0:
            return
        try:
            line, made_before = _line(place, optimizer, self.calls)
            self._members.append(RankWorker(line, optimizer, made_before=made_before, is_told_of_steps=False))
        except Exception:  # the first process says that this one is silent
            return


def _replicas(module: nn.Module) -> int:
    """How many processes DDP keeps alike."""
    return torch.distributed.get_world_size(module.process_group) if is_of(module, REPLICATED) else 0  # type: ignore[arg-type]


def _line(
    place: RankInfo, optimizer: torch.optim.Optimizer, calls: OptimizerStepCounts | None
) -> tuple[RankChannel, Callable[[], int] | None]:
    if calls is None:
        return RankChannel(place, next_name()), None
    return RankChannel(place, calls.name_of(optimizer)), partial(calls.made_before, optimizer)


def _ema_in_order(given: WatchArguments, optimizer: torch.optim.Optimizer) -> list[Tensor] | None:
    """In that of the optimizer."""
    if given.ema is None:
        return None
    names = {id(p): name for name, p in named_without_wrappers(unwrapped(given.model))}
    parameters = trained_by(optimizer)
    if any(id(p) not in names for p in parameters):
        return None
    return ema_of(given.ema, [(names[id(p)], p) for p in parameters])
