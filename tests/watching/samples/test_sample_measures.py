"""What keeps samples from being compared is said once."""

from __future__ import annotations

from pathlib import Path

import torch

from safelight.watching.arguments import PreviewIntervals
from safelight.watching.samples.sample_measures import SampleMeasures
from safelight.watching.watched_run import WatchedRun


def test_latents_are_not_compared_and_that_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    run = WatchedRun(tmp_path / "run", 0, said.append)
    often, device = PreviewIntervals(evaluate_every=1), torch.device("cpu")
    measures = SampleMeasures(torch.zeros(64, 4, 8, 8), often, run, 0, device, said.append, said.append)
    for update in (1, 2):
        assert measures.is_due(update)
        assert not measures.may_evaluate(update, ended=False, trained=1.0, image_seconds=0.0)
    measures.look(torch.zeros(4, 1, 8, 8), 2, ended=True, evaluating=False, trained=1.0)
    assert len(said) == 1
    assert "[n, 1 or 3, height, width]" in said[0]
    run.close()


def test_few_images_that_were_seen_are_waited_for(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path / "run", 0, print)
    often, device = PreviewIntervals(evaluate_every=1), torch.device("cpu")
    measures = SampleMeasures(None, often, run, 0, device, print, print)
    for update in range(1, 9):
        measures.see(torch.rand(64, 1, 8, 8))
        assert measures.may_evaluate(update, ended=False, trained=1.0, image_seconds=0.0) == (update >= 4)
    run.close()
