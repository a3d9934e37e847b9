"""The loop is shallow: between the call that trains and the network there are few frames to read."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from tiny import Quiet, tiny

from safelight import start
from safelight.training import step

MOST = 7  # functions of ours, from `start.train` to the call of the network


def test_few_frames_lie_between_train_and_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predict, found = step.predict, list[list[str]]()

    def looking(*given: object) -> object:
        names = [frame.name for frame in traceback.extract_stack()[:-1]]
        if "step" in names:
            found.append([*names[names.index("train") :], "predict"])
        return predict(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(step, "predict", looking)
    start.train(tiny(train__steps=2), run=tmp_path / "run", terminal=Quiet())
    assert found
    assert max(map(len, found)) <= MOST, found[0]
