from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from safelight import generate as module
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.generate import Request, evaluation_mode, generate
from safelight.model.unet import add_spectral_norm, build_unet

CONFIG = resolve(
    settings={
        "data.image_size": 8,
        "data.channels": 1,
        "data.classes": 3,
        "model.widths": "16",
        "model.norm_groups": 8,
        "model.layers": 1,
        "model.attention": "",
        "model.zero_output": False,
        "model.dropout": 0.5,
    }
)
CONDITIONAL = replace(CONFIG, model=replace(CONFIG.model, conditional=True))
SAMPLERS = ["ddim", "ddpm", "dpm-solver++"]


def unet(config: Config = CONFIG, seed: int = 0) -> nn.Module:
    return build_unet(config.model, image_size=8, channels=1, classes=3, seed=seed).train()


def contents(model: nn.Module) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_an_image_does_not_know_how_many_are_drawn(monkeypatch: pytest.MonkeyPatch, sampler: str) -> None:
    model = unet()
    many = generate(model, CONFIG, Request(7, 5, sampler, steps=3))  # type: ignore[arg-type]
    few = generate(model, CONFIG, Request(2, 5, sampler, steps=3))  # type: ignore[arg-type]
    monkeypatch.setattr(module, "LARGEST_BATCH", 3)
    split = generate(model, CONFIG, Request(7, 5, sampler, steps=3))  # type: ignore[arg-type]
    assert torch.allclose(few, many[:2], atol=1e-5)
    assert torch.allclose(split, many, atol=1e-5)
    assert all(not torch.allclose(many[i], many[j], atol=0.1) for i in range(7) for j in range(i))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_same_request_gives_the_same_bytes(sampler: str) -> None:
    model, request = unet(), Request(3, 1, sampler, steps=3)  # type: ignore[arg-type]
    first = generate(model, CONFIG, request)
    torch.rand(5)  # whatever else is drawn meanwhile
    assert torch.equal(generate(model, CONFIG, request), first)
    assert not torch.equal(generate(model, CONFIG, replace(request, seed=2)), first)
    assert first.shape == (3, 1, 8, 8)
    assert first.abs().max() <= 1


def test_other_weights_stand_in_and_do_not_leak() -> None:
    """The images are those of a model that has them; afterwards the model has its own, to the byte."""
    model, other, request = unet(seed=0), unet(seed=1), Request(2, 0, steps=3)
    weights = {name: p.detach().clone() for name, p in other.named_parameters()}
    kept, before = {name: w.clone() for name, w in weights.items()}, contents(model)
    storage = {name: p.data_ptr() for name, p in model.named_parameters()}
    own = generate(model, CONFIG, request)
    images = generate(model, CONFIG, request, weights=weights)
    assert torch.equal(images, generate(other, CONFIG, request))
    assert not torch.equal(images, own)
    assert contents(model) == before
    assert {name: p.data_ptr() for name, p in model.named_parameters()} == storage
    assert torch.equal(generate(model, CONFIG, request), own)
    assert all(torch.equal(weights[name], kept[name]) for name in weights)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_other_weights_stand_in_under_a_spectral_norm() -> None:
    """The averaged weights of such a model are those that the norm divides."""
    model, other, request = unet(seed=0), unet(seed=1), Request(2, 0, steps=3)
    add_spectral_norm(model)
    add_spectral_norm(other)
    other.load_state_dict(model.state_dict() | dict(other.named_parameters()))  # its own weights, the same vectors
    before = contents(model)
    images = generate(model, CONFIG, request, weights={n: p.detach() for n, p in other.named_parameters()})
    assert torch.equal(images, generate(other, CONFIG, request))
    assert contents(model) == before, "the power iteration stood still"


def test_weights_come_back_even_when_sampling_fails() -> None:
    model = unet()
    before = contents(model)

    def fail(t: int, x: Tensor) -> None:
        raise RuntimeError("stop")

    weights = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    with pytest.raises(RuntimeError, match="stop"):
        generate(model, CONFIG, Request(1, 0, steps=3), weights=weights, on_step=fail)
    assert contents(model) == before
    assert model.training


def test_modes_come_back_exactly() -> None:
    """A frozen submodule that the trainer keeps in eval() must not be woken up by a picture."""
    model = unet()
    frozen = model.get_submodule("mid_block")
    frozen.eval()
    modes = [m.training for m in model.modules()]
    assert {True, False} == set(modes)
    generate(model, CONFIG, Request(1, 0, steps=2))
    assert [m.training for m in model.modules()] == modes
    with evaluation_mode(model):
        assert not any(m.training for m in model.modules())
    assert [m.training for m in model.modules()] == modes


def test_dropout_is_off() -> None:
    """Negative control of the modes: in training mode the same model answers otherwise each time."""
    model, x, t = unet(), torch.zeros(1, 1, 8, 8), torch.zeros(1).long()
    assert not torch.equal(model(x, t).sample, model(x, t).sample)
    with evaluation_mode(model):
        assert torch.equal(model(x, t).sample, model(x, t).sample)


def test_training_randomness_is_not_touched() -> None:
    model, before = unet(), torch.random.get_rng_state()
    generate(model, CONFIG, Request(2, 0, "ddpm", steps=3))
    assert torch.equal(torch.random.get_rng_state(), before)


class Parrot(nn.Module):
    """Remembers which labels it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.asked: list[list[int]] = []

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        self.asked.append([] if labels is None else labels.tolist())
        return x * self.weight


@pytest.mark.parametrize(
    ("request_", "labels"),
    [
        (Request(7, 0, steps=1), [0, 1, 2, 0, 1, 2, 0]),
        (Request(2, 0, steps=1, label=1), [1, 1]),
        (Request(2, 0, steps=1, label=0), [0, 0]),
    ],
    ids=["all in turn", "one", "the first"],
)
def test_labels_of_a_conditional_model(request_: Request, labels: list[int]) -> None:
    parrot = Parrot()
    generate(parrot, CONDITIONAL, request_)
    assert parrot.asked == [labels]


def test_labels_go_on_over_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_BATCH", 2)
    parrot = Parrot()
    generate(parrot, CONDITIONAL, Request(5, 0, steps=1))
    assert parrot.asked == [[0, 1], [2, 0], [1]]


def test_guidance_also_asks_without_label() -> None:
    parrot = Parrot()
    generate(parrot, CONDITIONAL, Request(2, 0, steps=1, guidance=2.0))
    assert parrot.asked == [[0, 1], [3, 3]], "3 stands for no label"


def test_an_unconditional_model_gets_no_label() -> None:
    parrot = Parrot()
    generate(parrot, CONFIG, Request(2, 0, steps=1))
    assert parrot.asked == [[]]


def test_labels_matter_to_a_conditional_unet() -> None:
    model = unet(CONDITIONAL)
    zero, one = (generate(model, CONDITIONAL, Request(1, 0, steps=3, label=label)) for label in (0, 1))
    assert not torch.allclose(zero, one, atol=1e-3)


def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_BATCH", 2)
    steps: list[tuple[int, int]] = []
    generate(Parrot(), CONFIG, Request(3, 0, steps=2), on_step=lambda t, x: steps.append((t, len(x))))
    assert steps == [(999, 2), (499, 2), (999, 1), (499, 1)]


def test_sampled_in_fp32_whatever_is_around_it() -> None:
    model, request = unet(), Request(2, 0, steps=3)
    plain = generate(model, CONFIG, request)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(generate(model, CONFIG, request), plain)
    assert not plain.requires_grad


def test_layers_that_change_weights_with_their_mode_are_not_asked_to() -> None:
    """As layers with a low-rank part do: merged when they leave training, and nobody would undo it."""

    class Merging(nn.Linear):
        def train(self, mode: bool = True) -> Merging:
            if self.training and not mode:
                self.weight.data += 1
            return super().train(mode)

    model = nn.Sequential(Merging(2, 2), nn.Dropout()).train()
    before = contents(model)
    with evaluation_mode(model):
        assert not any(module.training for module in model.modules())
    assert contents(model) == before
    assert all(module.training for module in model.modules())
