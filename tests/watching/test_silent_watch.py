"""The watch of other processes, which has to answer whatever the first one's answers."""

from __future__ import annotations

import pickle

import pytest
from joint_loops import Small
from torch.distributed import HashStore
from torch.optim import SGD

from safelight.watching.loop import Watch
from safelight.watching.ranks.member import RankWorker
from safelight.watching.ranks.rank_channel import RankChannel, RankInfo
from safelight.watching.silent_watch import NullWatch


def public(kind: type) -> set[str]:
    inside = {"step_captured", "last_call", "folder"}  # for a session of `safelight run`, and where its record is
    return {name for name in dir(kind) if not name.startswith("_")} - inside


def test_it_has_every_public_name_of_a_watch() -> None:
    assert public(NullWatch) == public(Watch)


@pytest.mark.parametrize("name", sorted(public(Watch) - {"close", "step", "image", "log", "report"}))
def test_its_values_are_of_the_same_kind(name: str) -> None:
    declared = getattr(Watch, name).fget.__annotations__["return"].split("[")[0]
    value = getattr(NullWatch(), name)
    kinds = {
        "int": int, "str": str, "list": tuple, "Mapping": dict, "Progress": object, "Diagnosis": object,
        "int | None": type(None),
    }  # fmt: skip
    assert isinstance(dict(value) if declared == "Mapping" else value, kinds[declared])


def test_its_verdict_and_diagnosis_can_be_printed() -> None:
    watch = NullWatch()
    assert "the first one is" in watch.verdict
    assert watch.diagnosis.findings == []
    assert watch.diagnosis.to_json()["findings"] == []
    assert isinstance(pickle.loads(pickle.dumps(watch)), NullWatch)


def test_the_other_processes_count_their_updates() -> None:
    """`if watch.updates % 100 == 0: dist.barrier()` has to be the same on each."""
    model = Small()
    optimizer = SGD(model.parameters(), 0.1)
    member = RankWorker(RankChannel(RankInfo(HashStore(), 1, 2), "it"), optimizer)
    for _ in range(3):
        optimizer.step()
        member.step()
    assert member.updates == 3
    member._stop()
    optimizer.step()
    assert member.updates == 4
    member.close()
