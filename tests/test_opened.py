"""Reading a run while it trains."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from safelight import opened
from safelight.checkpoints.folder import place
from safelight.checkpoints.writer import write
from safelight.errors import CheckpointError, UsageError
from safelight.run import RunFolder, create_run
from torture.moments import QUICK, moment


def test_a_checkpoint_that_is_deleted_before_it_is_read_is_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with checkpoint.keep_last=1: whenever the reader comes, the writer was there."""
    folder, said, left = create_run(tmp_path / "run"), list[str](), 5
    write(folder.checkpoints, moment(1), disk=QUICK)
    true = opened.load

    def overtaken(path: Path, **given: object):
        nonlocal left
        if left:
            left -= 1
            write(folder.checkpoints, moment(10 - left), disk=QUICK)
            shutil.rmtree(path)
        return true(path, **given)

    monkeypatch.setattr(opened, "load", overtaken)
    assert opened._choose_checkpoint(folder, None, said.append).step == 10
    assert said == []


def test_damage_is_still_an_error(tmp_path: Path) -> None:
    folder, said = create_run(tmp_path / "run"), list[str]()
    write(folder.checkpoints, moment(1), disk=QUICK)
    (place(folder.checkpoints, 1) / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="No checkpoint of"):
        opened._choose_checkpoint(folder, None, said.append)
    assert len(said) == 1


@pytest.mark.parametrize(
    "line", ["model: {layers: 1000000000}", "diffusion: {timesteps: 1000000000}", "model: {dropout: 5}"]
)
def test_settings_out_of_range_are_refused_before_anything_is_built(tmp_path: Path, line: str) -> None:
    """Of a run that somebody sent: a U-Net of 10^9 layers would be built for ever."""
    (tmp_path / "config.yaml").write_text(f"data: {{channels: 1, classes: 10}}\n{line}\n")
    with pytest.raises(UsageError, match="must"):
        opened.read_config(RunFolder(tmp_path))
