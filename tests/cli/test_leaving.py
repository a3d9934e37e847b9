"""A process of many that fails goes at once, whatever it still has under way with one that does not answer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# A thread that the interpreter waits for stands for gloo, which waits for a process that is stopped. It ends once the
# main thread has: only a process that ends what it has begun lets it come so far.
FAILS = """
import threading, safelight.__main__ as program
program.main = lambda: print("told", flush=False) or {code}
threading.Thread(target=lambda: (threading.main_thread().join(), print("ended", flush=True))).start()
program.start()
"""


def leave(code: int, processes: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"WORLD_SIZE": processes}
    command = [sys.executable, "-c", FAILS.format(code=code)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_a_process_of_many_that_fails_waits_for_nothing() -> None:
    left = leave(75, "3")
    assert (left.returncode, left.stdout) == (75, "told\n")


@pytest.mark.parametrize(("code", "processes"), [(75, "1"), (0, "3")])
def test_others_end_what_they_have_begun(code: int, processes: str) -> None:
    left = leave(code, processes)
    assert (left.returncode, sorted(left.stdout.split())) == (code, ["ended", "told"])
