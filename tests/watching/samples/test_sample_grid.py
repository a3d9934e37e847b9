"""Pictures of a foreign loop: the same noise every time, and nothing of the loop changes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import safelight
from safelight.errors import UsageError
from safelight.probes.random_state import random_states
from safelight.watching.samples.sample_grid import SampleGrid


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Conv2d(4, 1, 1)
        )

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.inner(x) + t[:, None, None, None] * 1e-3


def ancestral(model: nn.Module, noise: Tensor) -> Tensor:
    """Draws noise of its own, and Python's and numpy's numbers too."""
    x = noise
    for t in (30, 20, 10):
        x = x - 0.1 * model(x, torch.full((len(x),), t)) + 0.01 * torch.randn_like(x)
    return x + 1e-3 * (random.random() + float(np.random.rand()))


def grid(tmp_path: Path, **given: Any) -> SampleGrid:
    return SampleGrid(tmp_path / "samples", ancestral, **{"noise": 4, "shape": (1, 8, 8)} | given)


def test_every_stage_has_the_same_noise_and_its_files(tmp_path: Path) -> None:
    model, pics = Denoiser(), grid(tmp_path)
    ema = safelight.EMA(model)
    first = pics.save(1, model, ema=ema)
    with torch.no_grad():
        model.inner[0].weight.add_(1.0)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    pics.save(2, model, ema=ema)
    names = sorted(path.name for path in pics.folder.iterdir())
    assert names == [
        f"{kind}_0000000{step}.png" for kind in ("denoising", "raw_and_averaged", "step") for step in (1, 2)
    ]
    assert first.read_bytes() == (pics.folder / "step_00000002.png").read_bytes(), "the EMA did not move"
    raw = [(pics.folder / f"raw_and_averaged_0000000{step}.png").read_bytes() for step in (1, 2)]
    assert raw[0] != raw[1]
    assert pics.steps == [1, 2]
    path = pics.timelapse(steps=[1, 2], fps=1)
    assert path is not None
    with Image.open(path) as image:
        assert getattr(image, "n_frames", 0) in (1, 2)  # equal frames are one


def test_one_image_does_not_depend_on_how_many_are_drawn(tmp_path: Path) -> None:
    def plain(model: nn.Module, noise: Tensor) -> Tensor:
        return noise * 0.1

    pics = SampleGrid(tmp_path, plain, 4, shape=(3, 8, 8), batch_size=3)
    torch.testing.assert_close(
        pics.draw(Denoiser(), count=10).samples[:4], pics.draw(Denoiser()).samples, rtol=0, atol=0
    )
    own = SampleGrid(tmp_path, plain, torch.randn(4, 3, 8, 8))
    drawn = own.draw(Denoiser(), count=6).samples
    assert drawn.shape == (6, 3, 8, 8)
    assert len({float(each.sum()) for each in drawn}) == 6


def test_nothing_of_the_loop_is_touched(tmp_path: Path) -> None:
    model = Denoiser()
    model.inner[2].eval()
    calls: list[int] = []
    model.register_forward_hook(lambda *_: calls.append(1))
    model(torch.randn(2, 1, 8, 8), torch.zeros(2)).sum().backward()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gradients = [None if each.grad is None else each.grad.clone() for each in model.parameters()]
    modes, states = [module.training for module in model.modules()], random_states()

    def careless(given: nn.Module, noise: Tensor) -> Tensor:
        given.train()
        model.eval()  # a sampler that uses the model around it
        return ancestral(given, noise)

    for sampler in (ancestral, careless):
        SampleGrid(tmp_path, sampler, 4, shape=(1, 8, 8)).save(1, model)
    assert random_states() == states
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert gradient is not None
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, gradient)
    assert len(calls) == 1, "hooks of the loop saw nothing"


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (lambda x: x.clamp(-1, 1), -1.0),
        (lambda x: x.sigmoid(), -1.0),
        (lambda x: x.sigmoid().permute(0, 2, 3, 1).numpy(), -1.0),
        (lambda x: (x.sigmoid() * 255).to(torch.uint8), -1.0),
        (lambda x: [Image.fromarray((each[0].sigmoid() * 255).to(torch.uint8).numpy()) for each in x], -1.0),
        (lambda x: x * 1e6, -1.0),
        (lambda x: x * float("nan"), float("nan")),
    ],
    ids=["[-1, 1]", "[0, 1]", "numpy", "bytes", "Pillow", "exploded", "nan"],
)
def test_any_form_of_samples_is_drawn(tmp_path: Path, returned: Any, expected: float) -> None:
    pics = SampleGrid(tmp_path, lambda model, noise: returned(noise), 2, shape=(1, 8, 8))
    samples = pics.draw(Denoiser()).samples
    assert samples.shape[0] == 2
    if expected == expected:
        assert -1 <= float(samples.min()) < 0 < float(samples.max()) <= 1
    assert pics.save(1, Denoiser()).is_file()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sampler": lambda: None}, "function of \\(model, noise\\)"),
        ({"noise": 0}, "noise is 0"),
        ({"noise": torch.zeros(3)}, "shape \\[n, channels"),
        ({"shape": None}, "Pass shape="),
        ({"sampler": lambda model, noise: noise[:1]}, "came \\[1, 1, 8, 8\\]"),
        ({"sampler": lambda model, noise: noise.expand(-1, 4, -1, -1)}, "Decode latents"),
        ({"sampler": lambda model, noise: "no image"}, "came a str"),
        ({"value_range": "[0, 9]"}, "value_range is"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_words(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    arguments = {"sampler": ancestral, "noise": 4, "shape": (1, 8, 8)} | given
    with pytest.raises(UsageError, match=words):
        SampleGrid(tmp_path, **arguments).save(1, Denoiser())


def test_the_shape_is_that_of_a_diffusers_model(tmp_path: Path) -> None:
    from diffusers.models.unets.unet_2d import UNet2DModel

    model = UNet2DModel(
        8, 1, 1, block_out_channels=(32,), down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",)
    )
    assert SampleGrid(tmp_path, lambda model, noise: noise).draw(model).samples.shape == (16, 1, 8, 8)


def test_an_ema_of_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="could not be matched"):
        grid(tmp_path).save(1, Denoiser(), ema=nn.Linear(2, 2))
