"""What scripts print."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelight.diagnosis.logs.cells import number_of
from safelight.diagnosis.logs.plain_text import rows
from safelight.diagnosis.logs.readings import readings_of
from safelight.diagnosis.logs.table import Table
from safelight.vocabulary import LEARNING_RATE, LOSS

FORMS = [
    "step {k} loss {loss:.4f} lr 1e-4",
    "[2024-01-01 12:00:00,123] INFO: iter {k}, loss: {loss:.6f}, lr: 1.0e-4.",
    "Epoch 1 | Step: {k} | Train Loss: {loss:.4f} | Learning rate: 0.0001 | val loss: 0.5",
    "{{'loss': {loss:.4f}, 'grad_norm': 1.5, 'learning_rate': 0.0001, 'step': {k}}}",
    "Steps:  10%|█   | {k}/1000 [00:10<01:30,  9.9it/s, lr=0.0001, step_loss={loss:.3g}]",
    "iteration [{k}/1000]  loss = {loss:.5f} (0.5)  lr = 1e-04",
    "global_step={k} train/loss=tensor({loss:.4f}) train/lr=1e-4",
    "--------------------\n| grad_norm | 0.5    |\n| loss      | {loss:.4f} |\n| lr | 1e-4 |\n| step      | {k} |",
    "\x1b[32mstep {k}\x1b[0m: loss={loss:.4f} lr=0.0001",
]


@pytest.mark.parametrize("form", FORMS)
def test_forms(tmp_path: Path, form: str) -> None:
    path = tmp_path / "out.log"
    lines = [form.format(k=k, loss=1 / (k + 1)) for k in range(1, 40)]
    path.write_text("Loading weights…\nseed: 42\n" + "\n".join(lines) + "\nSaving checkpoint at step 40\n" + "-" * 20)
    log = readings_of(Table().extend(rows(path)), "x", "text")
    steps, losses = log.readings.raw(LOSS.name)
    assert list(steps) == list(range(1, 40))
    assert losses[0] == pytest.approx(0.5, abs=1e-3)
    assert log.readings.raw(LEARNING_RATE.name)[1] == pytest.approx(1e-4)


def test_bars_count_on_over_epochs(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    bars = [f"Epoch {e}: 1%| | {k}/10 [00:01<00:02, loss=0.{k}5]" for e in range(3) for k in range(1, 11)]
    path.write_text("\r".join(bars))
    log = readings_of(Table().extend(rows(path)), "x", "text")
    assert list(log.readings.raw(LOSS.name)[0]) == list(range(1, 31))


def test_a_step_on_a_line_before(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text("".join(f"Step {k}:\n  loss: {1 / (k + 1):.3f}\n" for k in range(5)))
    log = readings_of(Table().extend(rows(path)), "x", "text")
    assert list(log.readings.raw(LOSS.name)[0]) == list(range(5))


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text("step 1 loss nan\nstep 2 loss inf\nstep 3 loss: NaN, lr 0.1\n")
    assert [str(number_of(row["loss"])) for row in rows(path)] == ["nan", "inf", "nan"]


def test_losses_of_a_validation_are_not_those_of_the_training(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text("step 1 loss 0.5\nstep 1 validation avg loss 0.9\n")
    assert set(Table().extend(rows(path)).columns) == {"step", "loss", "validation avg loss"}
