"""Event files as SummaryWriter and accelerate write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from loss_curves import healthy_curve

import safelight
from safelight.diagnosis.logs.cells import STEP
from safelight.diagnosis.logs.tensorboard_events import rows
from safelight.errors import UsageError

pytest.importorskip("tensorboard")
from torch.utils.tensorboard import SummaryWriter

LOSSES = healthy_curve(3, 300, 16)


def write(folder: Path, losses: np.ndarray, first: int = 0) -> None:
    with SummaryWriter(str(folder)) as writer:
        for step, loss in enumerate(losses, first):
            writer.add_scalar("train/loss", loss, step, new_style=bool(step % 2))
            writer.add_scalar("train/lr", 1e-4, step)
        writer.add_text("config", "x")


def test_scalars_and_tensors_of_one_number(tmp_path: Path) -> None:
    write(tmp_path, LOSSES[:5])
    found = list(rows(sorted(tmp_path.iterdir())))
    assert [row[STEP] for row in found] == [0, 1, 2, 3, 4]
    assert [row["train/loss"] for row in found] == pytest.approx(LOSSES[:5])


def test_a_run_that_was_resumed_and_broke(tmp_path: Path) -> None:
    write(tmp_path, LOSSES[:200])
    write(tmp_path, np.where(np.arange(100, 300) < 250, LOSSES[100:], np.nan), 100)
    newest = max(tmp_path.iterdir(), key=lambda path: path.name)
    newest.write_bytes(newest.read_bytes()[:-7])  # as a kill leaves it
    found = safelight.diagnose(tmp_path)
    assert [(finding.code, finding.step) for finding in found] == [("LOS001", 250)]


def test_a_folder_in_runs_is_a_log_and_not_a_run(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "Nov18_12-00-00_host", LOSSES)
    found = safelight.diagnose(tmp_path / "runs" / "Nov18_12-00-00_host")
    assert list(found) == []
    assert "of 1" in found.verdict


def test_several_runs_are_listed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / "logs" / name, LOSSES[:40])
    with pytest.raises(UsageError, match=r"has 2 logs. Name one of them:\n.*logs/a\n.*logs/b"):
        safelight.diagnose(tmp_path)


def test_as_accelerate_leaves_it(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(log_with="tensorboard", project_dir=tmp_path, cpu=True)
    accelerator.init_trackers("text2image", config={"lr": 1e-4})  # writes hparams into a folder of their own
    for step in range(300):
        accelerator.log({"train_loss": float(LOSSES[step]), "lr": 0.0}, step=step)
    accelerator.end_training()
    assert [finding.code for finding in safelight.diagnose(tmp_path)] == ["LRA003"]


def test_no_numbers(tmp_path: Path) -> None:
    SummaryWriter(str(tmp_path)).close()
    [path] = tmp_path.iterdir()
    with pytest.raises(UsageError, match="no numbers"):
        safelight.diagnose(path)
