"""What the first process makes of what the others tell: norms of whole tensors, and the processes compared."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from safelight.monitors.reading_buffer import PendingReading, ShardReduction
from safelight.monitors.shards import WHOLE, spans
from safelight.watching.ranks.comparison import Comparison
from safelight.watching.ranks.rank_channel import Entry, RankChannel
from safelight.watching.ranks.rank_monitor import RankMonitor, read_layout, trained_by
from safelight.words import first_line

FETCH_SECONDS = 0.05  # between two looks at what has come
PATIENCE = 10.0  # seconds that readings are held for the others; the loop goes on meanwhile
LAST_WAIT = 5.0  # seconds, when the watch is closed: the others close theirs at the same time
SHORT_WAIT = 0.5  # seconds, where none of them was heard of
POLL_SECONDS = 0.01
KEPT_CALLS = 1024  # updates, of a look that not all processes have told of
SILENT = (
    "{who} did not tell of its share within {seconds:.0f} s: what takes all processes is not measured (norms of "
    "sharded weights, the comparison of the processes). Call safelight.watch and watch.step on all of them."
)


class RankZero:
    """Of one watch. It never keeps the loop waiting, except for a moment at the end."""

    def __init__(
        self,
        line: RankChannel,
        optimizer: torch.optim.Optimizer,
        named: Sequence[tuple[str, nn.Parameter]],
        say_once: Callable[[str], None],
        *,
        made_before: Callable[[], int] | None = None,
        is_bound: bool = False,
    ) -> None:
        """`named`: the parameters that are measured, in their order; the others know that of the optimizer."""
        self._line, self._say_once, self._made_before, self._is_bound = line, say_once, made_before, is_bound
        parameters = trained_by(optimizer)
        self._look = RankMonitor(parameters, line.size)
        self.is_sharded = any(piece != WHOLE for piece in self._look.pieces)
        self._is_bound |= spans(parameters, line.size)
        places = {id(p): place for place, p in enumerate(parameters)}
        self._places = np.array([places.get(id(p), -1) for _, p in named], np.int64)
        self._layouts: dict[int, list[str]] = {0: self._look.pieces}
        self._shares: np.ndarray | None = None  # [processes, parameters] 1 where the piece counts: each piece once
        self._comparison: Comparison | None = None
        self._entries = defaultdict[int, dict[int, dict[str, np.ndarray]]](dict)  # by update and process
        self._looks: dict[int, tuple[int, dict[str, np.ndarray]]] = {}  # by update: its step here, and what was seen
        self._norms: dict[int, np.ndarray] = {}
        self._call: int | None = None
        self._calls = -1
        self._fetched = 0.0
        self._read_until = -1  # the last update that was read
        self._asked: float | None = None
        self._is_patient, self._is_cut = True, False
        self._look.begin(0 if made_before is None else made_before())

    # --- in a step ------------------------------------------------------------------------------------------------

    def before_update(self, step: int) -> None:
        self._calls = self._calls + 1 if self._made_before is None else self._made_before()
        self._call = self._calls
        if seen := self._look.take(self._calls):
            self._looks[self._calls] = step, seen
        self._look.begin(self._calls + 1)

    def take_call(self) -> int | None:
        """The number of the update that was made last, once."""
        call, self._call = self._call, None
        return call

    @torch.no_grad()
    def see(self, x0: Tensor | None, noise: Tensor | None) -> None:
        """What the loop itself passes of the update that was made last, as it does on all processes."""
        if self._call in self._looks:
            self._looks[self._call][1].update(self._look.describe(x0, noise))

    def joined(self, pending: Sequence[PendingReading], call: int | None) -> list[PendingReading]:
        """Those of sharded parameters wait for the pieces of the others."""
        if not self.is_sharded or call is None:
            return list(pending)
        return [each if each.share is None else self._join(each, each.share, call) for each in pending]

    # --- between steps --------------------------------------------------------------------------------------------

    def ready(self, calls: Sequence[int | None], *, at_last: bool = False) -> int:
        """How many of these steps can be read, from the first on; they will be."""
        count = self._count_ready(calls, at_last=at_last)
        self._read_until = max([self._read_until, *(call for call in calls[:count] if call is not None)])
        return count

    def _count_ready(self, calls: Sequence[int | None], *, at_last: bool) -> int:
        self._fetch()
        if at_last:
            self._await(calls)
            return len(calls)
        if not self.is_sharded:
            return len(calls)
        count = next(
            (i for i, call in enumerate(calls) if call is not None and not self._is_complete(call)), len(calls)
        )
        if count == len(calls):
            self._asked = None
        elif count and self._is_patient:
            self._asked = time.monotonic()
        elif self._is_out_of_patience():
            return len(calls)
        return count

    def _await(self, calls: Sequence[int | None]) -> None:
        """At the end, shortly; hardly where nobody else has said a word: loops under DDP may watch one process only."""
        begun = time.monotonic()
        while self._is_patient and self._lacks(calls):
            are_there = self.is_sharded or len(self._layouts) == self._line.size
            if time.monotonic() - begun > (LAST_WAIT if are_there else SHORT_WAIT):
                return
            time.sleep(POLL_SECONDS)
            self._fetch(at_once=True)

    def norms(self, call: int | None) -> Tensor | None:
        """Of the gradients of whole parameters, once."""
        found = None if call is None else self._norms.pop(call, None)
        return None if found is None else torch.from_numpy(found)

    def compared(self) -> list[tuple[int, dict[str, float]]]:
        """By step; once each."""
        found = []
        complete = [call for call in self._looks if self._is_complete(call)]
        for call in complete:
            step, own = self._looks.pop(call)
            if self._comparison is None:
                layouts = [self._layouts[rank] for rank in range(self._line.size)]
                self._comparison = Comparison(layouts, is_bound=self._is_bound)
            others = [self._entries[call][rank] for rank in range(1, self._line.size)]
            found.append((step, self._comparison.readings([own, *others])))
        # What was told of a later one is told of no earlier one: a closure is called several times in one update.
        lost = max([self._calls - KEPT_CALLS, *complete])
        self._looks = {call: each for call, each in self._looks.items() if call > lost}
        for call in [call for call in self._entries if call <= self._read_until and call not in self._looks]:
            del self._entries[call]
        return found

    def close(self) -> None:
        self._look.close()

    # --- what comes -----------------------------------------------------------------------------------------------

    def _fetch(self, *, at_once: bool = False) -> None:
        if not at_once and time.monotonic() - self._fetched < FETCH_SECONDS:
            return
        self._fetched = time.monotonic()
        if self._is_cut:
            return
        try:
            for rank, entry in self._line.fetch():
                self._take(rank, entry)
        except Exception as error:  # the store has gone, and with it what was told
            self._is_cut, self._is_patient = True, False
            self._say_once(
                f"The other processes cannot be heard any more ({type(error).__name__}: {first_line(error)})."
            )

    def _take(self, rank: int, entry: Entry) -> None:
        if "failed" in entry:
            words = entry["failed"].tobytes().decode(errors="replace")
            self._say_once(f"The watch of process {rank} stopped ({words}).")
            self._is_patient = False
        if "layout" in entry:
            self._layouts[rank] = read_layout(entry)
        for name, each in entry.items():
            call, _, kind = name.partition("/")
            if kind:
                self._entries[int(call)].setdefault(rank, {})[kind] = each

    def _lacks(self, calls: Sequence[int | None]) -> bool:
        wanted = [call for call in calls if call is not None] if self.is_sharded else []
        return any(not self._is_complete(call) for call in [*wanted, *self._looks])

    def _is_complete(self, call: int) -> bool:
        has_layouts = len(self._layouts) == self._line.size
        return has_layouts and len(self._entries.get(call, ())) == self._line.size - 1

    def _is_out_of_patience(self) -> bool:
        if self._asked is None:
            self._asked = time.monotonic()
        if self._is_patient and time.monotonic() - self._asked > PATIENCE:
            self._is_patient = False
            missing = [rank for rank in range(1, self._line.size) if rank not in self._layouts]
            who = f"Process {missing[0]}" if missing else "A process"
            self._say_once(SILENT.format(who=who, seconds=PATIENCE))
        return not self._is_patient

    # --- whole tensors --------------------------------------------------------------------------------------------

    def _join(self, piece: PendingReading, share: ShardReduction, call: int) -> PendingReading:
        def finish(*arrays: np.ndarray) -> Mapping[str, float]:
            count = len(arrays) if share.count is None else share.count
            own = np.stack([each.astype(np.float64) for each in arrays[:count]])
            whole = self._whole(share, own, call)
            if whole is None:
                return {}
            rest = list(arrays[count:])
            if share.name == "norms":
                self._norms[call] = whole[0]
                rest[0] = np.array([np.linalg.norm(whole[0]), *rest[0][1:]])
            return piece.finish(*whole, *rest)

        return replace(piece, finish=finish, share=None)

    def _whole(self, share: ShardReduction, own: np.ndarray, call: int) -> np.ndarray | None:
        """Sums over all processes, or norms over them; None where one has not told."""
        if not self._is_complete(call) or (shares := self._counting()) is None:
            return None
        rows = [own]
        for rank in range(1, self._line.size):
            told = self._entries[call][rank]
            theirs = [told[name] for name in (share.name, *share.also) if name in told]
            if not theirs:
                return None
            rows.append(self._in_order(np.concatenate(theirs).astype(np.float64)))
        count = min(map(len, rows))
        stacked = np.stack([each[:count] for each in rows])
        with np.errstate(over="ignore", invalid="ignore"):
            if not share.of_norms:
                return (shares[:, None] * stacked).sum(0)
            counted = np.where(shares[:, None] > 0, stacked, 0.0)
            return np.sqrt(np.square(counted).sum(0)).astype(np.float32)

    def _in_order(self, rows: np.ndarray) -> np.ndarray:
        """In that of the parameters here; 0 of what the optimizer does not hold."""
        return np.where(self._places >= 0, rows[:, self._places], 0.0)

    def _counting(self) -> np.ndarray | None:
        """Each piece is counted for the first process that holds it. None where the processes hold other parameters."""
        if self._shares is None:
            layouts = [self._layouts[rank] for rank in range(self._line.size)]
            if len({len(layout) for layout in layouts}) > 1:
                self._say_once("The optimizers of the processes hold other parameters: norms are not measured.")
                return None
            found = np.zeros((len(layouts), len(layouts[0])))
            for place, pieces in enumerate(zip(*layouts, strict=True)):
                found[[pieces.index(piece) for piece in set(pieces)], place] = 1
            found = np.where(self._places >= 0, found[:, self._places], 0.0)
            found[0, self._places < 0] = 1.0
            self._shares = found
        return self._shares
