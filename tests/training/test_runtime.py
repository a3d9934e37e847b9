"""Devices, and a machine that is not ours alone."""

from __future__ import annotations

import pytest
import torch

from safelight.errors import UsageError
from safelight.training.runtime import Runtime, busy_machine, choose_device


@pytest.mark.parametrize(
    ("load", "cores", "threads", "told"),
    [(0.6, 2, 2, False), (1.4, 2, 2, True), (1.4, 2, 1, False), (1.4, 8, 4, False), (6.0, 8, 4, True)],
)
@pytest.mark.parametrize("limit", ["", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_a_busy_machine_is_reported(
    load: float, cores: int, threads: int, told: bool, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    if limit:
        monkeypatch.setenv(limit, "0")
    words = busy_machine(load, cores, threads)
    assert (words is not None) is told
    assert ("GOMP_SPINCOUNT=10000" in (words or "")) is (told and not limit)


@pytest.mark.parametrize(("name", "words"), [("cuda", "no CUDA"), ("gpu", "no device"), ("mps", "no MPS")])
def test_absent_device_is_an_error_never_a_silent_cpu(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UsageError, match=words):
        choose_device(name)


def test_auto_takes_the_best_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto").type == "cuda"


def test_engine_of_one_process() -> None:
    runtime = Runtime("cpu")
    assert (runtime.group.rank, runtime.group.size, runtime.group.is_main) == (0, 1, True)
