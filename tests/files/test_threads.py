"""Files are hashed and written several at a time on a real disk, one after the other where a test counts calls."""

from __future__ import annotations

import threading

import pytest

from safelight.files import DISK, Disk
from safelight.files import threads as files_threads
from safelight.files.threads import MIN_BYTES, in_threads
from torture.disks import QuickDisk


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_threads.os, "sched_getaffinity", lambda _: range(4), raising=False)


def size_of(number: int) -> int:
    return MIN_BYTES * number


def test_files_are_worked_on_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=60)

    def act(number: int) -> int:
        together.wait()  # comes back once all three are here
        return 10 * number

    assert in_threads(act, [1, 3, 2], size_of, DISK) == [10, 30, 20]


@pytest.mark.parametrize(("disk", "sizes"), [(QuickDisk(), 1), (DISK, 0)], ids=["counted", "small"])
def test_elsewhere_one_comes_after_the_other(disk: Disk, sizes: int) -> None:
    seen: list[tuple[int, threading.Thread]] = []
    in_threads(lambda number: seen.append((number, threading.current_thread())), [1, 3, 2], lambda n: n * sizes, disk)
    assert seen == [(number, threading.current_thread()) for number in (1, 3, 2)]


def test_none_is_at_work_any_more_where_one_fails() -> None:
    began, ended = threading.Event(), list[int]()

    def act(number: int) -> None:
        if number == 2:
            began.wait(60)
            raise OSError(28, "full")
        began.set()
        ended.append(number)

    with pytest.raises(OSError, match="full"):
        in_threads(act, [1, 2, 3], size_of, DISK)
    assert sorted(ended) == [1, 3]
