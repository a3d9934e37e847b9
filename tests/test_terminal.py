"""What is said may be lost; the run that says it may not."""

from __future__ import annotations

import errno
import io
import os
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from safelight.terminal import Terminal, _epochs_in_words, _precision_in_words
from safelight.training.step_reporter import StepSummary


class FullDisk(io.StringIO):
    """A log on a disk without room."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def test_a_full_disk_under_the_log_costs_its_lines_only() -> None:
    log = FullDisk()
    terminal = Terminal(Console(file=log, width=200))
    terminal.say("lost")
    log.full = False
    terminal.say("found")
    assert "found" in log.getvalue()


def test_the_screen_says_what_is_done_instead_of_steps() -> None:
    log = io.StringIO()
    terminal = Terminal(Console(file=log, width=200))
    assert "drawing the first samples, then the first step" in shown(terminal)
    terminal.doing("drawing samples")
    assert "drawing samples …" in shown(terminal)
    terminal.show(StepSummary(4, 8, 0.5, 1e-3, 1.0, 100.0, 12.0, 0))
    assert "0:12 left  drawing samples …" in shown(terminal)
    terminal.doing("")
    assert "drawing" not in shown(terminal)


def shown(terminal: Terminal) -> str:
    log = io.StringIO()
    Console(file=log, width=200).print(terminal._block())
    return log.getvalue()


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        (0.0134, "0.013 epochs"),
        (1.0, "1 epoch"),
        (2.46, "2.5 epochs"),
        (9.99, "10 epochs"),
        (12_345.6, "12,346 epochs"),
    ],
)
def test_the_length_in_epochs_in_words(epochs: float, words: str) -> None:
    assert _epochs_in_words(epochs) == words


@pytest.mark.parametrize(("device", "precision", "native", "is_said"), [
    ("cpu", "fp32", False, False), ("cpu", "bf16", False, True), ("cpu", "bf16", True, False),
    ("cpu", "fp16", True, True), ("cuda", "fp16", True, False)])  # fmt: skip
def test_half_precision_on_a_cpu_is_said_to_be_slow(device: str, precision: str, native: bool, is_said: bool) -> None:
    config = SimpleNamespace(train=SimpleNamespace(precision=precision))
    runtime = SimpleNamespace(device=torch.device(device), has_native_bf16=native)
    setup = SimpleNamespace(config=config, runtime=runtime)
    words = _precision_in_words(setup)  # type: ignore[arg-type]
    assert words.startswith(precision)
    assert ("slower than fp32" in words) == is_said


@pytest.mark.parametrize(("skill", "words"), [(None, "loss 0.5  lr"), (1.318, "loss 0.5  skill 1.32  lr")])
def test_the_skill_is_in_the_plain_line_once_it_is_measured(skill: float | None, words: str) -> None:
    log = io.StringIO()
    Terminal(Console(file=log, width=200)).show(StepSummary(8, 8, 0.5, 1e-3, 1.0, 100.0, 0.0, 0, skill))
    assert words in log.getvalue()


def test_the_skill_is_in_the_live_block() -> None:
    log = io.StringIO()
    terminal = Terminal(Console(file=log, width=200, force_terminal=True, color_system=None))
    with terminal.live():
        terminal.show(StepSummary(8, 8, 0.5, 1e-3, 1.0, 100.0, 0.0, 0, -0.25))
    assert "loss 0.5   skill -0.25   gradient" in log.getvalue()
