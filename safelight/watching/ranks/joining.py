"""Whether a process joins those that train with it: as the first one, which hears the others, or as a member."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from safelight.monitors.modules import REPLICATED, is_of, named_without_wrappers, unwrapped
from safelight.watching.arguments import WatchArguments
from safelight.watching.foreign import bare_optimizer, ema_of
from safelight.watching.ranks.calls import Calls
from safelight.watching.ranks.first import First
from safelight.watching.ranks.line import Place, RankChannel, next_name, place_here
from safelight.watching.ranks.look import trained_by
from safelight.watching.ranks.member import Member
from safelight.watching.silent_watch import SilentWatch
from safelight.words import first_line


def join_as_first(
    given: WatchArguments,
    named: Sequence[tuple[str, nn.Parameter]],
    say_once: Callable[[str], None],
    calls: Calls | None,
) -> First | None:
    """None where the process is alone or the optimizer is not known."""
    place = place_here()
    if place is None or given.optimizer is None:
        return None
    optimizer = bare_optimizer(given.optimizer)
    try:
        line, made_before = _line(place, optimizer, calls)
        is_bound = any(_replicas(module) == place.size for module in given.model.modules())
        return First(line, optimizer, named, say_once, made_before=made_before, is_bound=is_bound)
    except Exception as error:
        say_once(f"The other processes cannot be reached ({type(error).__name__}: {first_line(error)}).")
        return None


def join_as_member(given: WatchArguments) -> SilentWatch:
    """Of a loop that calls `watch` on all processes."""
    place = place_here()
    if place is None or given.optimizer is None:
        return SilentWatch()
    optimizer = bare_optimizer(given.optimizer)
    try:
        line, _ = _line(place, optimizer, None)
        return Member(line, given.optimizer, read_ema=partial(_ema_in_order, given, optimizer))
    except Exception:  # the first process says that this one is silent
        return SilentWatch()


class Members:
    """Of a script that knows nothing of it: one for each optimizer, from its first step on. None on the first process,
    which has but the calls in common with the others."""

    def __init__(self) -> None:
        self._members: list[Member] = []
        self.calls = Calls(self._join)

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
            self._members.append(Member(line, optimizer, made_before=made_before, is_told_of_steps=False))
        except Exception:  # the first process says that this one is silent
            return


def _replicas(module: nn.Module) -> int:
    """How many processes DDP keeps alike."""
    return torch.distributed.get_world_size(module.process_group) if is_of(module, REPLICATED) else 0  # type: ignore[arg-type]


def _line(
    place: Place, optimizer: torch.optim.Optimizer, calls: Calls | None
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
