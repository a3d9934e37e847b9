"""Every stage keeps its pictures, and the record names them all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from safelight.config.resolve import resolve
from safelight.diagnosis.rules.ema import OTHER_WEIGHTS_DISTANCE, SAME_SAMPLES_DISTANCE
from safelight.generate import generate
from safelight.record.history import open_history
from safelight.training.previews import cost_in_steps, preview_steps

pytestmark = pytest.mark.usefixtures("no_report")


def test_every_stage_has_its_pictures_in_the_record(train_tiny: Callable[..., Path]) -> None:
    run = train_tiny("stages", **{"sample.every": 2})
    with open_history(run / "record.sqlite") as history:
        found = history.pictures()
    stages = [(picture.kind, picture.step) for picture in found if picture.kind not in ("timelapse", "contact_sheet")]
    kinds = ("denoising", "raw_and_averaged", "samples")
    assert stages == [(kind, step) for step in (2, 4, 6) for kind in kinds]
    assert [(picture.kind, picture.step) for picture in found if picture.kind not in kinds] == [
        ("contact_sheet", 0),
        ("timelapse", 6),
    ]
    for picture in found:
        with Image.open(run / picture.path) as image:
            assert image.size == (picture.width, picture.height)
    names = {path.name for path in (run / "samples").iterdir()}
    assert names == {Path(picture.path).name for picture in found}


@pytest.mark.parametrize(
    ("steps", "batch", "budget", "count"),
    [
        (20_000, 64, 0.15, 20),
        (1000, 128, 0.15, 20),
        (300, 16, 0.15, 4),  # 25 steps for each
        (30, 128, 0.15, 4),  # 3 steps for each
        (30, 16, 0.15, 2),  # four would take three times the training
        (1000, 16, 0.3, 12),
        (1000, 16, 0.0, 4),
    ],
)
def test_pictures_have_a_budget(steps: int, batch: int, budget: float, count: int) -> None:
    settings = {"train.steps": steps, "train.batch_size": batch, "sample.budget": budget}
    config = resolve(settings=settings)
    planned = preview_steps(config)
    assert (len(planned), max(planned)) == (count, steps)
    assert len(planned) * cost_in_steps(config) <= max(budget, 1.0 if count == 4 else 0.0) * steps or count == 2
    said = preview_steps(resolve(settings=settings | {"sample.every": 10}))
    assert set(said) == {*range(10, steps + 1, 10)}, "who says how often gets it"


def test_guidance_takes_two_passes() -> None:
    plain, guided = (cost_in_steps(resolve(settings={"sample.guidance": scale})) for scale in (1.0, 2.0))
    assert guided == 2 * plain


def test_a_run_may_draw_no_pictures(train_tiny: Callable[..., Path]) -> None:
    run = train_tiny("none", **{"sample.every": 0, "evaluate.every": 0})
    with open_history(run / "record.sqlite") as history:
        assert [picture.kind for picture in history.pictures()] == ["contact_sheet"]


def test_pictures_of_stages_that_are_given_up_are_drawn_again(train_tiny: Callable[..., Path]) -> None:
    """A resume cuts the record; what is drawn after it stands there once."""
    import safelight

    run = train_tiny("again", **{"sample.every": 3, "checkpoint.every": 3})
    before = [path for path in sorted((run / "checkpoints").iterdir()) if path.name.startswith("step_")]
    for path in before[1:]:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    safelight.resume(run)
    with open_history(run / "record.sqlite") as history:
        assert [picture.step for picture in history.pictures("denoising")] == [3, 6]
        assert len(history.pictures("contact_sheet")) == len(history.pictures("timelapse")) == 1


@pytest.mark.parametrize("averaged", [True, False])
def test_pictures_of_averaged_weights_are_not_those_of_raw_ones(
    averaged: bool,
    train_tiny: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not averaged:  # a sampler that forgets to take the average
        from safelight.training import previews

        def forgetful(*given: Any, weights: Any = None, **named: Any) -> Any:
            return generate(*given, **named)

        monkeypatch.setattr(previews, "generate", forgetful)
    run = train_tiny(f"averaged-{averaged}", **{"sample.every": 3, "optimizer.lr": 0.02, "optimizer.warmup": 0})
    with open_history(run / "record.sqlite") as history:
        steps, apart = history.raw("check/pictures/apart")
        _, distance = history.raw("check/pictures/distance")
    assert list(steps) == [3, 6]
    assert (distance > OTHER_WEIGHTS_DISTANCE).all()
    assert ((apart > SAME_SAMPLES_DISTANCE) == averaged).all()
    import safelight

    told = [finding.cause for finding in safelight.diagnose(run)]
    assert ("ema.not-sampled" in told) == (not averaged)
    cause = "LEA003 loss.undertrained" if averaged else "EMA006 ema.not-sampled, since step 3"
    last = f"findings   warning {cause}"
    assert last in capsys.readouterr().err, "the last screen says so too"
