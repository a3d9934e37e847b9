"""Each pass has its mean loss in the record and on the screen, also across a resume."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from tiny import Crash, Own, Quiet, tiny

from safelight.config.resolve import resolve
from safelight.observing.epochs import LINES
from safelight.record.reading import read_events, read_signal
from safelight.start import resume, train

pytestmark = pytest.mark.usefixtures("no_report")

# 8 px digits in batches of 1,000: about 1.7 steps a pass.
LARGE = {"train__batch_size": 1000, "train__steps": 7, "checkpoint__every": 3}


def model() -> Own:
    """So small that a thousand images take milliseconds."""
    torch.manual_seed(0)
    return Own()


def trained(path: Path, **settings: Any) -> Quiet:
    terminal = Quiet()
    train(tiny(**LARGE | settings), run=path, model=model(), terminal=terminal)
    return terminal


def passes(path: Path) -> list[dict[str, Any]]:
    return [{"step": step} | facts for step, _, facts in read_events(path / "record.sqlite", "epoch")]


def test_every_pass_has_its_mean_loss(tmp_path: Path) -> None:
    terminal = trained(tmp_path / "run")
    record, found = tmp_path / "run" / "record.sqlite", passes(tmp_path / "run")
    losses = dict(read_signal(record, "loss/mean"))
    begin = 0
    for number, each in enumerate(found, 1):
        assert each["epoch"] == number
        assert each["steps"] == each["step"] + 1 - begin
        assert each["loss"] == pytest.approx(fmean(losses[step] for step in range(begin, each["step"] + 1)))
        begin = each["step"] + 1
    assert len(found) == 4  # 7,000 of 1,706 images
    assert [number for _, number in read_signal(record, "epoch/done")] == [1, 2, 3, 4]
    assert [loss for _, loss in read_signal(record, "epoch/loss")] == pytest.approx([each["loss"] for each in found])
    lines = [text for text in terminal.said if text.startswith("Epoch ")]
    assert lines == [f"Epoch {e['epoch']} ended at step {e['step'] + 1}: mean loss {e['loss']:.4g}." for e in found]


def test_a_resume_in_the_middle_of_a_pass_gives_the_same_means(tmp_path: Path) -> None:
    trained(tmp_path / "whole")
    with pytest.raises(Crash):
        train(tiny(**LARGE), run=tmp_path / "cut", model=model(), terminal=Quiet(crash_after=4))
    resume(tmp_path / "cut", model=model(), terminal=Quiet())
    assert passes(tmp_path / "cut") == passes(tmp_path / "whole")


def test_a_long_run_prints_a_few_passes_and_records_all(tmp_path: Path) -> None:
    terminal = trained(tmp_path / "run", train__steps=25)
    assert len(passes(tmp_path / "run")) == 14
    lines = [text for text in terminal.said if text.startswith("Epoch ")]
    assert 1 < len(lines) <= LINES
    assert lines[0].startswith("Epoch 2 ")


def test_a_length_in_epochs_is_said_and_kept_in_steps(tmp_path: Path) -> None:
    terminal = Quiet()
    config = tiny(train__batch_size=1000, checkpoint__every="1ep")
    config = resolve(base=config, settings={"train.epochs": 2})
    run = train(config, run=tmp_path / "run", model=model(), terminal=terminal)
    assert run.step == 4
    assert (run.config.train.steps, run.config.train.epochs, run.config.checkpoint.every) == (4, None, 2)
    assert any(text.startswith("2 epochs of 1,") and text.endswith(": 4 steps.") for text in terminal.said)
    more = resume(tmp_path / "run", settings={"train.epochs": 3}, force=True, model=model(), terminal=Quiet())
    assert (more.step, more.config.train.steps) == (6, 6)
