"""The denoiser: the same from the same seed, zero at the start, whole blocks recomputed, no pickle opened."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.attention_processor import Attention
from diffusers.models.downsampling import Downsample2D
from diffusers.models.resnet import ResnetBlock2D
from diffusers.models.unets.unet_2d import UNet2DModel
from diffusers.models.upsampling import Upsample2D
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrize import is_parametrized

from safelight.config.tree import Model
from safelight.errors import UsageError
from safelight.model.unet import (
    add_spectral_norm,
    build_unet,
    checkpoint_blocks,
    initialise,
    load_pipeline_unet,
    predict,
)

SMALL = Model(widths=(16, 32), layers=1, attention=(4,), head_width=8, norm_groups=8)
CLASSES = 3
LAYERS = (ResnetBlock2D, Attention, Downsample2D, Upsample2D)


def build(seed: int = 0, **changes: Any) -> UNet2DModel:
    model = build_unet(replace(SMALL, **changes), image_size=8, channels=3, classes=CLASSES, seed=seed)
    assert isinstance(model, UNet2DModel)
    return model


def batch(count: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(count, 3, 8, 8, generator=generator)
    return images, torch.arange(count) * 300, torch.arange(count) % CLASSES


def wake(model: UNet2DModel) -> UNet2DModel:
    """An output layer that lets the rest of the network through."""
    with torch.no_grad():
        model.conv_out.weight.normal_(generator=torch.Generator().manual_seed(2))
    return model


# --- building -------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    first, again, other = (build(seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not torch.equal(first["conv_in.weight"], other["conv_in.weight"])


def test_the_weights_do_not_depend_on_the_caller() -> None:
    torch.manual_seed(5)
    first = build().conv_in.weight
    torch.manual_seed(6)
    assert torch.equal(first, build().conv_in.weight)


@pytest.mark.parametrize("work", [build, lambda: add_spectral_norm(build())])
def test_the_random_state_of_the_caller_is_not_moved(work: Callable[[], object]) -> None:
    before = torch.get_rng_state()
    work()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_first_answer_is_zero_at_every_timestep() -> None:
    model = build()
    images = torch.randn(50, 3, 8, 8)
    assert not predict(model, images, torch.arange(0, 1000, 20), None).any()


def test_without_zero_output_it_is_not() -> None:
    images, t, _ = batch()
    assert predict(build(zero_output=False), images, t, None).abs().min() > 0


def test_attention_is_where_it_was_asked_for() -> None:
    model = build_unet(
        replace(SMALL, widths=(16, 32, 32), attention=(8,)), image_size=16, channels=1, classes=0, seed=0
    )
    assert isinstance(model, UNet2DModel)
    having = [name for name, layer in model.named_modules() if isinstance(layer, Attention)]
    assert {name.rsplit(".", 2)[0] for name in having} == {"down_blocks.1", "up_blocks.1"}
    assert {layer.heads for layer in model.modules() if isinstance(layer, Attention)} == {4}


def test_the_last_label_stands_for_none() -> None:
    model = build(conditional=True)
    assert isinstance(model.class_embedding, nn.Embedding)
    assert model.class_embedding.num_embeddings == CLASSES + 1


def test_labels_change_the_answer_once_the_output_layer_lives() -> None:
    model = wake(build(conditional=True))
    images, t, labels = batch()
    assert not torch.allclose(predict(model, images, t, labels), predict(model, images, t, labels + 1))
    same = predict(build(conditional=True), images, t, labels) - predict(build(conditional=True), images, t, labels + 1)
    assert not same.any()  # the negative control: at the start there is nothing to see


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"norm_groups": 32}, r"norm_groups is 32.*width 16.*Use one of 1, 2, 4, 8, 16\."),
        ({"norm_groups": 0}, "norm_groups is 0"),
        ({"widths": (16, 16, 16, 16, 16)}, r"image_size is 8.*halve 4 times.* Use 16\."),
        ({"attention": (5,)}, r"is set to 5 px.*8, 4 px"),
        ({"head_width": 12}, "head_width is 12.*width 32.*at 4 px"),
    ],
)
def test_what_cannot_be_built_is_told_in_words(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        build(**changes)


def test_labels_that_the_data_does_not_have_are_told_in_words() -> None:
    with pytest.raises(UsageError, match="no labels"):
        build_unet(replace(SMALL, conditional=True), image_size=8, channels=3, classes=0, seed=0)


# --- calling --------------------------------------------------------------------------------------------------


class Foreign(nn.Module):
    """Anybody's denoiser."""

    def __init__(self, answer: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.answer = answer
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Any:
        shift = t if label is None else label
        return self.answer(x * self.scale + shift.view(-1, 1, 1, 1))


def test_any_module_of_image_time_and_label_works() -> None:
    images, t, labels = batch()
    model = Foreign(lambda x: x)
    assert torch.equal(predict(model, images, t, None), images + t.view(-1, 1, 1, 1))
    assert torch.equal(predict(model, images, t, labels), images + labels.view(-1, 1, 1, 1))


def test_the_answer_is_taken_out_of_what_it_comes_in() -> None:
    images, t, _ = batch()
    for wrapped in (lambda x: (x, None), lambda x: type("Output", (), {"sample": x})()):
        assert predict(Foreign(wrapped), images, t, None).shape == images.shape


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda x: torch.cat([x, x], 1), r"\(2, 3, 8, 8\) into \(2, 6, 8, 8\).*variance"),
        (lambda x: x[..., ::2], r"into \(2, 3, 8, 4\)"),
        (lambda x: {"mean": x}, "returned a dict"),
        (lambda x: None, "returned a NoneType"),
    ],
)
def test_an_answer_of_another_shape_is_told_in_words(answer: Callable[[Tensor], Any], words: str) -> None:
    images, t, _ = batch()
    with pytest.raises(UsageError, match=f"Foreign.*{words}"):
        predict(Foreign(answer), images, t, None)


def test_attention_goes_through_the_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = functional.scaled_dot_product_attention

    def spy(*args: Any, **named: Any) -> Tensor:
        calls.append(args[0].shape)
        return real(*args, **named)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", spy)
    model = build()
    images, t, _ = batch()
    predict(model, images, t, None)
    assert len(calls) == sum(isinstance(layer, Attention) for layer in model.modules())
    assert set(calls) == {(2, 4, 16, 8)}  # images, heads, pixels, head width


# --- gradient checkpointing -----------------------------------------------------------------------------------


def gradients(model: nn.Module, seed: int = 7) -> tuple[Tensor, dict[str, Tensor]]:
    images, t, _ = batch()
    torch.manual_seed(seed)  # dropout
    answer = predict(model, images, t, None)
    answer.square().mean().backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return answer.detach(), found


def assert_same_gradients(model: nn.Module, other: nn.Module) -> None:
    (answer, found), (other_answer, other_found) = gradients(model), gradients(other)
    assert torch.equal(answer, other_answer)
    assert found.keys() == other_found.keys()
    assert {name for name, value in found.items() if not torch.equal(value, other_found[name])} == set()


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_are_the_same_with_and_without(dropout: float) -> None:
    plain, checkpointed = (wake(build(dropout=dropout)).train() for _ in range(2))
    checkpoint_blocks(checkpointed)
    assert_same_gradients(plain, checkpointed)
    if dropout:  # or the test would not have seen dropout at all
        assert not torch.equal(gradients(plain, seed=7)[0], gradients(plain, seed=8)[0])


def test_spectral_norm_does_not_step_twice() -> None:
    plain, checkpointed = (wake(build()).train() for _ in range(2))
    for model in (plain, checkpointed):
        add_spectral_norm(model)
    checkpoint_blocks(checkpointed)
    for _ in range(3):
        assert_same_gradients(plain, checkpointed)
    for (name, buffer), other in zip(plain.named_buffers(), checkpointed.buffers(), strict=True):
        assert torch.equal(buffer, other), name


def forwards(model: nn.Module) -> Counter[str]:
    """How often each layer ran in one forward and backward pass."""
    calls: Counter[str] = Counter()

    def count(name: str) -> Callable[..., None]:
        return lambda *_: calls.update([name])

    hooks = [
        layer.register_forward_pre_hook(count(name))
        for name, layer in model.named_modules()
        if isinstance(layer, LAYERS)
    ]
    gradients(model)
    for hook in hooks:
        hook.remove()
    return calls


def test_every_layer_of_every_block_is_recomputed() -> None:
    model = wake(build()).train()
    assert set(forwards(model).values()) == {1}
    assert checkpoint_blocks(model) == 5  # two down, one in the middle, two up
    calls = forwards(model)
    assert len(calls) == sum(isinstance(layer, LAYERS) for layer in model.modules())
    assert {name: number for name, number in calls.items() if number != 2} == {}


def test_the_flag_of_diffusers_misses_attention() -> None:
    """The negative control: why `checkpoint_blocks` exists, and proof that the count above can fail."""
    model = wake(build()).train()
    model.enable_gradient_checkpointing()
    calls = forwards(model)
    missed = {type(model.get_submodule(name)) for name, number in calls.items() if number == 1}
    assert Attention in missed
    assert all(number == 1 for name, number in calls.items() if isinstance(model.get_submodule(name), Attention))


def test_nothing_is_recomputed_where_nothing_is_learnt() -> None:
    images, t, _ = batch()
    model = wake(build())
    checkpoint_blocks(model)
    for mode in (False, True):
        calls: list[int] = []
        hook = model.up_blocks[0].register_forward_hook(lambda *_, seen=calls: seen.append(1))
        with torch.set_grad_enabled(not mode):
            answer = predict(model.train(mode), images, t, None)
        assert answer.requires_grad != mode
        hook.remove()
        assert calls == [1]


def test_names_stay_and_copies_are_independent() -> None:
    model = wake(build()).train()
    names = list(model.state_dict())
    checkpoint_blocks(model)
    checkpoint_blocks(model)  # twice is once
    assert list(model.state_dict()) == names
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert set(forwards(twin).values()) == {2}
    assert gradients(twin)[0].any(), "the copy ran the blocks of the original"


def test_a_model_without_blocks_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match="Foreign has none of them"):
        checkpoint_blocks(Foreign(lambda x: x))


# --- spectral norm --------------------------------------------------------------------------------------------


def test_spectral_norm_is_on_all_layers_of_the_blocks_and_on_no_other() -> None:
    model = build()
    count = add_spectral_norm(model)
    normed = {name for name, layer in model.named_modules() if is_parametrized(layer)}
    inside = {
        name
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Conv2d | nn.Linear) and name.startswith(("down_blocks", "mid_block", "up_blocks"))
    }
    assert normed == inside
    assert count == len(inside)
    weight = model.get_submodule("mid_block.resnets.0.conv1").weight
    assert isinstance(weight, Tensor)
    assert torch.linalg.matrix_norm(weight.flatten(1), 2).item() == pytest.approx(1, abs=0.05)


def test_spectral_norm_is_reproducible_and_its_buffers_are_state() -> None:
    first, again = build(), build()
    add_spectral_norm(first)
    torch.manual_seed(99)
    add_spectral_norm(again)
    before = {name: value.clone() for name, value in first.state_dict().items() if name.endswith("._u")}
    assert before
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in before.items())
    gradients(wake(first).train())
    assert any(not torch.equal(value, first.state_dict()[name]) for name, value in before.items())


def test_a_layer_of_zeros_cannot_be_normed() -> None:
    model = build()
    nn.init.zeros_(model.get_submodule("mid_block.resnets.0.conv1").weight)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"mid_block.resnets.0.conv1.*all zero"):
        add_spectral_norm(model)


# --- starting from a file -------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    wake(build()).save_pretrained(tmp_path / "pipeline" / "unet", safe_serialization=True)
    return tmp_path / "pipeline"


@pytest.mark.parametrize("inside", ["", "unet"])
def test_a_pipeline_and_a_bare_folder_are_loaded(saved: Path, inside: str) -> None:
    before = torch.get_rng_state()
    model = load_pipeline_unet(saved / inside)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    expected = wake(build()).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())


def test_half_precision_becomes_full(tmp_path: Path) -> None:
    build().half().save_pretrained(tmp_path)
    assert {p.dtype for p in load_pipeline_unet(tmp_path).parameters()} == {torch.float32}


def as_pickle(folder: Path) -> None:
    weights = folder / "unet" / "diffusion_pytorch_model.safetensors"
    torch.save(build().state_dict(), weights.with_suffix(".bin"))
    weights.unlink()


def with_class(kind: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "unet" / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "_class_name": kind}))

    return change


def with_other_widths(folder: Path) -> None:
    file = folder / "unet" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "num_class_embeds": 7}))


def torn(folder: Path) -> None:
    file = folder / "unet" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (as_pickle, r"only diffusion_pytorch_model.bin, a pickle.*safe_serialization=True"),
        (lambda f: (f / "unet" / "diffusion_pytorch_model.safetensors").unlink(), "found none"),
        (lambda f: (f / "unet" / "config.json").unlink(), "holds no diffusers model"),
        (lambda f: (f / "unet" / "config.json").write_text("{"), "does not name the class"),
        (lambda f: (f / "unet" / "config.json").write_text("[]"), "does not name the class"),
        (with_class("UNet2DConditionModel"), "holds a UNet2DConditionModel. Only a UNet2DModel"),
        (with_class("os.system"), "holds a os.system"),
        (with_other_widths, "1 missing keys, such as class_embedding.weight"),
        (torn, "cannot be loaded"),
    ],
)
def test_what_is_not_a_safe_unet_is_refused_in_words(saved: Path, change: Callable[[Path], None], words: str) -> None:
    change(saved)
    with pytest.raises(UsageError, match=words):
        load_pipeline_unet(saved)


def test_a_pickle_is_never_opened(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_pickle(saved)
    opened: list[object] = []
    monkeypatch.setattr(torch, "load", lambda *args, **_: opened.append(args))
    with pytest.raises(UsageError):
        load_pipeline_unet(saved)
    assert opened == []


class Mixer(nn.Module):
    """A model of one's own: a list of layers between two others."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enter, self.leave = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 1, 3, padding=1)
        self.body = nn.ModuleList(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.SiLU()) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        for layer in self.body:
            x = x + layer(x)
        return self.leave(x)


def test_models_of_ones_own_are_checkpointed_and_bounded() -> None:
    plain, checkpointed = Mixer(), Mixer()
    assert checkpoint_blocks(checkpointed) == 3
    x, found = torch.randn(2, 1, 8, 8), []
    for model in (plain, checkpointed):
        model(x).square().sum().backward()
        found.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*found, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)
    assert add_spectral_norm(plain) == 4, "all but the last"
    with pytest.raises(UsageError, match="has none of them"):
        checkpoint_blocks(nn.Linear(2, 2))


@pytest.mark.parametrize("how", ["default", "xavier", "kaiming"])
def test_how_weights_begin(how: Any) -> None:
    unet = build(initialisation=how)
    bound = float(unet.conv_in.weight.detach().abs().max())  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    again = build(initialisation=how)
    assert torch.equal(unet.conv_in.weight, again.conv_in.weight)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    out = sum(float(parameter.detach().abs().sum()) for parameter in unet.conv_out.parameters())  # pyright: ignore[reportAttributeAccessIssue]
    assert out == 0, "the output begins at zero"
    fans = unet.conv_in.weight[0].numel(), unet.conv_in.weight[:, 0].numel()  # pyright: ignore[reportIndexIssue]
    wanted = {"xavier": (6 / sum(fans)) ** 0.5, "kaiming": (6 / fans[0]) ** 0.5}
    assert how == "default" or bound == pytest.approx(wanted[how], rel=0.1)


@pytest.mark.parametrize("how", ["xavier", "kaiming", "default"])
def test_the_last_layer_of_any_model_may_begin_at_zero(how: str) -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.SiLU(), nn.Sequential(nn.Conv2d(4, 1, 3)), nn.SiLU())
    nn.init.ones_(model[2][0].bias)
    initialise(model, how, zero_last=True)
    assert not any(each.any() for each in model[2].parameters())
    assert model[0].weight.any()


def test_a_model_without_layers_has_no_last_one() -> None:
    with pytest.raises(UsageError, match="no convolution or linear layer"):
        initialise(nn.Sequential(nn.SiLU()), "xavier", zero_last=True)


def test_an_unknown_way_to_initialise_is_refused() -> None:
    model = nn.Linear(2, 2)
    before = model.weight.clone()
    with pytest.raises(UsageError, match=r"'foo'.*xavier, kaiming or default"):
        initialise(model, "foo")
    assert torch.equal(model.weight, before)
