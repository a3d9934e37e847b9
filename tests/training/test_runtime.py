"""Devices, and a machine that is not ours alone."""

from __future__ import annotations

import pytest
import torch

from safelight.errors import UsageError
from safelight.training.runtime import Runtime, busy_machine, choose_device


@pytest.mark.parametrize(
    ("load", "cores", "threads", "told"),
    [(0.2, 2, 2, False), (1.4, 2, 2, True), (1.4, 2, 1, False), (1.4, 8, 4, False), (6.0, 8, 4, True)],
)
def test_busy_machine_is_told(
    load: float, cores: int, threads: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert (busy_machine(load, cores, threads) is not None) is told
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    assert busy_machine(load, cores, threads) is None


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
