from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import safelight
from safelight.config.presets import FLAGS
from safelight.errors import DataError, UsageError
from safelight.library import settings_of


@pytest.mark.parametrize("words", ["import safelight", "import safelight.training.ema as ema"])
def test_the_verbs_are_callable_whatever_was_imported_before(words: str) -> None:
    """`safelight.train` is a function and a package; twice, because the first call imports the package."""
    script = f"""
{words}
import safelight
from safelight.errors import DataError, UsageError
for _ in range(2):
    for verb in (safelight.train, safelight.resume):
        try:
            verb("nothing-here", stepps=5)
        except UsageError as error:
            assert "steps" in str(error)
        else:
            raise SystemExit(verb)
    assert callable(safelight.open) and safelight.Config() and safelight.Run
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_safelight_is_light() -> None:
    script = "import sys, safelight; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_everything_promised_is_there() -> None:
    assert all(getattr(safelight, name) for name in safelight.__all__)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        safelight.trian  # noqa: B018


def test_flags_are_those_of_the_command_line() -> None:
    assert settings_of(dict.fromkeys(FLAGS, 1)) == dict.fromkeys(FLAGS.values(), 1)
    with pytest.raises(
        UsageError, match=r"no argument 'stepps'\. Did you mean 'steps'\? Other settings go into settings="
    ):
        settings_of({"stepps": 5})


def test_an_objective_stands_for_several_settings() -> None:
    flow = settings_of({"objective": "flow", "steps": 5})
    assert flow["diffusion.process"] == flow["diffusion.prediction"] == "flow"
    assert flow["train.steps"] == 5
    with pytest.raises(UsageError, match="one of v, epsilon"):
        settings_of({"objective": "vp"})


def test_a_run_can_be_opened_and_drawn_from(trained_run: Path) -> None:
    run = safelight.open(trained_run)
    assert (run.path, run.step, run.config.train.steps) == (trained_run, 6, 6)
    images = run.sample(3, seed=1, steps=2)
    assert images.shape == (3, 1, 8, 8)
    assert torch.equal(images, safelight.open(str(trained_run)).sample(3, seed=1, steps=2))


def test_a_model_of_ones_own_is_trained(train_tiny: Callable[..., Path], tmp_path: Path) -> None:
    """Any nn.Module of (x, t); to resume and to sample it has to be given again, since a run holds no code."""

    class Denoiser(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Conv2d(1, 1, 3, padding=1)

        def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * t.view(-1, 1, 1, 1) / 1000

    settings = {"sample.steps": 2, "sample.count": 4, "model.conditional": False, "ema.snapshots": 0}
    model = Denoiser()
    before = model.layer.weight.detach().clone()
    run = safelight.train("digits", run=tmp_path / "run", model=model, steps=3, batch_size=8, settings=settings)
    assert run.step == 3
    assert not torch.equal(model.layer.weight, before)
    assert safelight.resume(tmp_path / "run", model=Denoiser()).step == 3


def test_images_from_python_are_trained_on_and_found_by_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAFELIGHT_CACHE", str(tmp_path / "cache"))
    images = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40) % 2
    settings = {"sample.steps": 2, "sample.count": 4, "ema.snapshots": 0, "train.preflight": "off", "evaluate.every": 0,
                "model.widths": "16", "model.norm_groups": 8, "model.attention": ""}  # fmt: skip
    small = {"run": tmp_path / "run", "steps": 4, "batch_size": 8, "settings": settings, "checkpoint_every": 2}
    run = safelight.train((images, labels), **small)
    said = " ".join(capfd.readouterr().err.split())
    assert "Read 40 images of 8 × 8 px from a pair of images and labels, values taken for [0, 1]" in said
    assert "have 2 classes, which the model does not learn" in said
    assert (run.step, run.config.data.image_size, run.config.data.classes) == (4, 8, 2)
    assert safelight.resume(tmp_path / "run", steps=5, force=True).step == 5
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(DataError, match="Pass the same images again"):
        safelight.resume(tmp_path / "run", steps=6, force=True)
    with pytest.raises(UsageError, match="are not those that"):
        safelight.resume(tmp_path / "run", data=images.flip(0))
    assert safelight.resume(tmp_path / "run", data=(images, labels), steps=6, force=True).step == 6


def test_what_is_no_data_is_refused_in_few_words() -> None:
    with pytest.raises(DataError, match="data is a dict, but it must be") as caught:
        safelight.train({"a": torch.zeros(1000)})
    assert len(str(caught.value)) < 300
