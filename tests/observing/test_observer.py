"""The observer of a step: measured, brought to the host, recorded and diagnosed, whoever trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from safelight.monitors.loss import noise_binning_of_table
from safelight.monitors.reading_buffer import PendingReading
from safelight.monitors.suite import FULL_READ_INTERVAL, Monitors
from safelight.observing.observer import Observer, UpdateStats
from safelight.probes.forward_pass import ForwardPass


class Record:
    def __init__(self) -> None:
        self.rows: dict[int, dict[str, float]] = {}

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        self.rows.setdefault(step, {}).update(numbers)


class Calls:
    """Stands for an inspection or a diagnosis: keeps the names of what was called."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.passes: list[ForwardPass] = []

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Any:
            self.names.append(name)
            if name == "after_update":
                self.passes = list(given[0])
                return [PendingReading((), lambda: {"check/passes": float(len(self.passes))})]
            return None

        return call


def update(refused: float = 0.0) -> UpdateStats:
    norms = torch.tensor([3.0, 4.0])
    one = torch.tensor(1.0)
    return UpdateStats(torch.tensor([0.5, 1.5]), None, norms, torch.tensor(5.0), one, one, torch.tensor(refused))


def observer(record: Record, probe_runner: Any = None, diagnosis: Any = None) -> Observer:
    return Observer(
        record,
        Monitors(nn.Linear(2, 1), noise_binning_of_table(np.zeros(10))),
        probe_runner,
        diagnosis,
        flush_by_time=False,
    )


@pytest.mark.parametrize("refused", [0.0, 1.0])
def test_the_readings_of_a_step_reach_the_record(refused: float) -> None:
    watching = observer(record := Record())
    watching.add(3, watching.after_update(3, update(refused)), {"optimizer/lr": 0.1})
    assert record.rows == {}
    assert watching.read() == [record.rows[3]]
    found = {name: record.rows[3][name] for name in ("loss/mean", "gradient/norm", "update/refused", "optimizer/lr")}
    assert found == {"loss/mean": 1.0, "gradient/norm": 5.0, "update/refused": refused, "optimizer/lr": 0.1}


def test_gradients_are_measured_only_where_every_weight_is_read() -> None:
    watching, measured = observer(Record()), list[int]()
    for step in range(FULL_READ_INTERVAL + 2):

        def gradients(step: int = step) -> list[Tensor]:
            measured.append(step)
            return [torch.ones(1, 2), torch.ones(1)]

        watching.before_update(step, gradients)
        watching.after_update(step, update())
    assert measured == [0, FULL_READ_INTERVAL]


def test_a_repeated_step_counts_once() -> None:
    watching = observer(record := Record(), probe_runner := Calls())
    watching.begin_step()
    watching.add_forward_pass(torch.tensor(9.0))
    watching.repeat_step()
    for _ in range(2):
        watching.add_forward_pass(torch.tensor(1.0))
    watching.add(1, watching.after_update(1, update()), {})
    watching.read()
    assert [float(each.loss) for each in probe_runner.passes] == [1.0, 1.0]
    assert record.rows[1]["check/passes"] == 2
    assert "begin_again" in probe_runner.names


def test_without_an_inspection_no_pass_is_kept() -> None:
    watching = observer(Record())
    watching.add_forward_pass(torch.tensor(1.0))
    assert watching.forward_passes == []


def test_after_a_return_nothing_of_the_given_up_steps_is_recorded() -> None:
    watching = observer(record := Record(), probe_runner := Calls(), diagnosis := Calls())
    watching.add(5, watching.after_update(5, update()), {})
    watching.restart()
    assert (watching.read(), record.rows) == ([], {})
    assert ("forget" in probe_runner.names, diagnosis.names) == (True, ["restart"])


def test_the_last_diagnosis_is_a_whole_one() -> None:
    watching = observer(Record(), None, diagnosis := Calls())
    watching.diagnose(1)
    watching.diagnose(2, at_last=True)
    assert diagnosis.names == ["poll", "finish"]
