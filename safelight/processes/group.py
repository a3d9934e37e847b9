"""The processes of one run: who is in the group, how they communicate, and that none waits in vain."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import _set_pg_timeout  # torch has no public name for it

from safelight.config.tree import Train
from safelight.errors import FollowedError, Interrupted, ProcessLost, SafelightError, Stopped, UsageError
from safelight.processes.heartbeat import Heartbeat
from safelight.processes.launcher import agent_store, meet

LONGEST_WAIT = timedelta(hours=2)  # for a process that lives and is busy on its own: an evaluation, a slow disk
# Times train.timeout that processes wait for each other at first, and five times that where gloo connects
MEETING_TIMEOUTS = 5
POLL_INTERVAL = timedelta(seconds=1)  # between two checks of the others while waiting

T = TypeVar("T")


@dataclass(slots=True)
class AsyncResult:
    """Something under way between the processes."""

    result: Tensor
    work: Any | None


class ProcessGroup:
    """One process among `size`; alone, everything is trivial. All processes call the same methods in the same order.

    Only tensors and JSON travel: what one process sends, the others never unpickle."""

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0, heartbeat: Heartbeat | None = None) -> None:
        self.rank, self.size, self.local_rank, self._heartbeat = rank, size, local_rank, heartbeat
        self.seconds_waited = 0.0  # seconds that this process spent waiting for others
        self._turns = 0
        self._home = torch.device("cpu")
        if size > 1 and dist.get_backend() == "nccl":
            self._home = torch.device("cuda", torch.cuda.current_device())
        if heartbeat is not None:
            heartbeat.on_device = self._home.type != "cpu"

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    # --- one of the processes ----------------------------------------------------------------------------------------

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the message of a process that fails, and ends as the one that failed first."""
        if self._heartbeat is None:
            return
        if isinstance(error, Interrupted | Stopped):
            self._heartbeat.await_message()
        first = None if error is None else self._heartbeat.leave_message(error)
        if isinstance(error, SafelightError):
            error.reported = first is not None
        self._heartbeat.part(failed=error is not None, lost=isinstance(error, ProcessLost))
        if first is not None and isinstance(error, SafelightError | RuntimeError):
            raise FollowedError(*first) from error

    def beat(self) -> None:
        """A heartbeat of the thread that trains."""
        if self._heartbeat is not None:
            self._heartbeat.progress += 1

    @contextmanager
    def expecting_progress(self) -> Iterator[None]:
        """While the others may expect progress; elsewhere a process may take its time."""
        if self._heartbeat is not None:
            self._heartbeat.watched = True
        try:
            yield
        finally:
            if self._heartbeat is not None:
                self._heartbeat.watched = False

    def local_main_first(self, act: Callable[[], T]) -> T:
        """Done by one process of every machine, and then by the others, which find it done."""
        if self._heartbeat is None:
            return act()
        self._turns += 1
        turn = f"turn-{self._turns}-{os.environ.get('GROUP_RANK', '0')}"
        try:
            while self.local_rank and self._heartbeat.read(turn) is None:
                self._refuse_lost()
                time.sleep(0.02)
        except RuntimeError as error:  # the store went with the process that kept it
            raise self._lost(error) from error
        found = act()
        if not self.local_rank:
            self._heartbeat.write(turn, "1")
        return found

    # --- collectives ---------------------------------------------------------------------------------------------

    def start_all_reduce(self, tensor: Tensor) -> AsyncResult:
        """In place, over all processes."""
        return self._start(tensor, lambda: dist.all_reduce(tensor, async_op=True))

    def start_all_gather(self, tensor: Tensor) -> AsyncResult:
        """[count, …]: that of every process."""
        tensor = tensor.contiguous()
        if self.size == 1:
            return AsyncResult(tensor.unsqueeze(0), None)
        found = tensor.new_empty((self.size, *tensor.shape))
        return self._start(found, lambda: dist.all_gather(list(found.unbind(0)), tensor, async_op=True))

    def start_all_gather_into(self, found: Tensor, tensor: Tensor) -> AsyncResult:
        """As `start_all_gather`, one after the other into memory that is there."""
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name before torch 2.13
        return self._start(found, lambda: gather(found, tensor, async_op=True))

    def start_all_to_all(self, sent: Tensor, sizes: list[int], got: Tensor, got_sizes: list[int]) -> AsyncResult:
        """The first `sizes[0]` numbers go to the first process, and so on; they come in the order of the processes."""
        return self._start(got, lambda: dist.all_to_all_single(got, sent, got_sizes, sizes, async_op=True))

    def wait(self, pending: AsyncResult) -> Tensor:
        """Waits for it, and no longer than the others live."""
        if pending.work is not None:
            begun, watched = time.perf_counter(), self._heartbeat is not None and self._heartbeat.watched
            if self._heartbeat is not None:
                self._heartbeat.watched = False
            self._wait(pending.work)
            self.seconds_waited += time.perf_counter() - begun
            if self._heartbeat is not None:
                self._heartbeat.watched = watched
        return pending.result

    def all_gather(self, tensor: Tensor) -> Tensor:
        return self.wait(self.start_all_gather(tensor))

    def all_gather_host(self, tensor: Tensor) -> Tensor:
        """Gathers tensors on the host, wherever the processes meet."""
        return self.all_gather(tensor.to(self._home)).cpu()

    def broadcast_tensor(self, tensor: Tensor) -> Tensor:
        """That of the first process, in place."""
        if self.size > 1 and tensor.numel():
            sent = tensor.to(self._home).contiguous()
            self.wait(self._start(sent, lambda: dist.broadcast(sent, 0, async_op=True)))
            tensor.copy_(sent)
        return tensor

    def broadcast(self, find: Callable[[], Any], *, all_act: bool = False) -> Any:
        """The result of the first process, to all. Only it calls, unless it takes all of them to find the result."""
        if self.size == 1:
            return find()
        value = find() if self.is_main or all_act else None
        encoded = json.dumps(value).encode() if self.is_main else b""
        size = self.broadcast_tensor(torch.tensor([len(encoded)]))
        received = torch.frombuffer(bytearray(encoded or int(size)), dtype=torch.uint8)
        return json.loads(bytes(self.broadcast_tensor(received).numpy()))

    def all_gather_object(self, value: Any) -> list[Any]:
        """The value of each process."""
        if self.size == 1:
            return [value]
        encoded = json.dumps(value).encode()
        sizes = self.all_gather_host(torch.tensor([len(encoded)])).flatten().tolist()
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(encoded)] = torch.frombuffer(bytearray(encoded), dtype=torch.uint8)
        rows = self.all_gather_host(padded).numpy()
        return [json.loads(bytes(row[:size])) for row, size in zip(rows, sizes, strict=True)]

    # --- notes: from any thread, in any order ---------------------------------------------------------------------

    @property
    def is_broken(self) -> bool:
        """Whether one of them is gone."""
        return self._heartbeat is not None and self._heartbeat.lost is not None

    def post(self, key: str, value: Any) -> None:
        """A note for the other processes, to be found by its key."""
        if self.size > 1:
            self._from_any_thread(lambda heartbeat: heartbeat.write(f"note/{key}", json.dumps(value)))

    def wait_for_note(self, *keys: str) -> Any:
        """Waits for the first of these notes, and no longer than the others live."""
        while True:
            for key in keys:
                note = self._from_any_thread(lambda heartbeat, key=key: heartbeat.read(f"note/{key}"))
                if note is not None:
                    return json.loads(note)
            time.sleep(0.02)

    def _from_any_thread(self, act: Callable[[Heartbeat], T]) -> T:
        """The thread that trains has to notice a loss by itself, or the heartbeat would not wake it."""
        assert self._heartbeat is not None, "there are no other processes"
        if self._heartbeat.lost is not None:
            raise ProcessLost(self._heartbeat.lost)
        try:
            return act(self._heartbeat)
        except RuntimeError as error:
            raise ProcessLost("The store that the launcher keeps does not answer.") from error

    def _start(self, result: Tensor, launch: Callable[[], Any]) -> AsyncResult:
        if self.size == 1:
            return AsyncResult(result, None)
        try:
            return AsyncResult(result, launch())
        except RuntimeError as error:
            raise self._lost(error) from error

    def _wait(self, work: Any) -> None:
        if self._home.type != "cpu":
            work.wait()  # only the stream waits; should it wait in vain, the heartbeat ends the process
            return
        completed = False
        while True:
            try:
                work.wait(POLL_INTERVAL)
                return
            except RuntimeError as error:
                if completed:  # before this wait began: it was no timeout
                    raise self._lost(error) from error
                completed = work.is_completed()  # it may have succeeded just after the timeout: wait once more
                if not completed:
                    self._refuse_lost()

    def _refuse_lost(self) -> None:
        if self.is_broken:
            raise self._lost(None)

    def _lost(self, error: BaseException | None) -> ProcessLost:
        assert self._heartbeat is not None
        return ProcessLost(self._heartbeat.find_lost() or f"The connection between the processes broke: {error}.")


def join_group(settings: Train) -> ProcessGroup:
    """The group of a launcher (torchrun, accelerate, or RANK and WORLD_SIZE by hand)."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ProcessGroup()
    from accelerate import PartialState

    cpu = settings.device == "cpu" or not torch.cuda.is_available()
    try:
        seconds, place = MEETING_TIMEOUTS * settings.timeout, {}
        if (store := agent_store()) is not None:
            rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            place = {"store": meet(store, rank, size, seconds), "rank": rank, "world_size": size}
        state = PartialState(cpu=cpu, timeout=timedelta(seconds=seconds), **place)
        _set_pg_timeout(LONGEST_WAIT)  # from now on: who has come is watched, and may be busy
        token = torch.tensor([secrets.randbits(62)], device=state.device)
        dist.broadcast(token, 0)  # distinguishes this group from one before it on the same store
        heartbeat = Heartbeat(state.process_index, state.num_processes, str(int(token)), patience=settings.timeout)
    except (RuntimeError, ValueError) as error:  # an address that does not answer, a variable or a process missing
        raise UsageError(
            f"The processes could not find each other: {str(error).splitlines()[0]} MASTER_ADDR, MASTER_PORT, RANK and "
            "WORLD_SIZE must be set and true for every process; torchrun and accelerate launch do that."
        ) from error
    return ProcessGroup(state.process_index, state.num_processes, state.local_process_index, heartbeat)
