from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.diffusion.draws import sample_generators
from safelight.errors import UsageError
from safelight.export import export_pipeline, plain_unet
from safelight.generate import Request, generate
from safelight.keys import derive_seed
from safelight.model.unet import add_spectral_norm, build_unet, checkpoint_blocks
from safelight.pictures.grid import to_uint8

CONFIG = resolve(
    settings={
        "data.image_size": 8,
        "data.channels": 1,
        "data.classes": 3,
        "model.widths": "16 16",
        "model.norm_groups": 8,
        "model.layers": 1,
        "model.attention": "4",
        "model.head_width": 8,
        "model.zero_output": False,
    }
)
COUNT, STEPS, SEED = 3, 5, 11


def changed(**settings: Any) -> Config:
    return resolve(base=CONFIG, settings={name.replace("__", "."): value for name, value in settings.items()})


def unet(config: Config = CONFIG) -> nn.Module:
    return build_unet(config.model, image_size=8, channels=config.data.channels or 1, classes=3, seed=0).eval()


def draw_with_diffusers(folder: Path, sampler: str, steps: int = STEPS) -> np.ndarray:
    """What a stranger does with the folder, with one generator per image."""
    import diffusers

    kind = {"ddim": diffusers.DDIMPipeline, "ddpm": diffusers.DDPMPipeline}[sampler]
    pipeline = kind.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    generators = [torch.Generator().manual_seed(derive_seed(SEED, "sample", i)) for i in range(COUNT)]
    images = pipeline(batch_size=COUNT, generator=generators, num_inference_steps=steps, output_type="np").images
    return np.rint(images * 255).astype(np.uint8)


def far(one: np.ndarray, other: np.ndarray) -> int:
    assert one.shape == other.shape
    return int(np.abs(one.astype(int) - other.astype(int)).max())


def draw(model: nn.Module, config: Config, sampler: str, **how: Any) -> np.ndarray:
    return to_uint8(generate(model, config, Request(COUNT, SEED, sampler, STEPS, **how)))  # type: ignore[arg-type]


@pytest.mark.parametrize("sampler", ["ddim", "ddpm"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"diffusion__prediction": "epsilon", "diffusion__schedule": "linear"},
        {"diffusion__prediction": "sample", "diffusion__schedule": "sigmoid"},
        {"diffusion__zero_terminal_snr": True, "diffusion__timesteps": 250},
        {"data__channels": 3},
    ],
    ids=str,
)
def test_a_pipeline_draws_the_same_images(tmp_path: Path, sampler: str, settings: dict[str, Any]) -> None:
    config = changed(**settings)
    model = unet(config)
    export_pipeline(model, config, tmp_path / "pipeline")
    ours = draw(model, config, sampler)
    theirs = draw_with_diffusers(tmp_path / "pipeline", sampler)
    assert far(ours, theirs) <= 1
    assert ours.std() > 10, "an empty picture would equal an empty picture"


def run_the_card(folder: Path, noise: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """What the lines in the README of an export draw, from this noise."""
    code = (folder / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(folder)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "randn", lambda *shape: noise.clone())
        found: dict[str, Any] = {}
        exec(code, found)
    return to_uint8(found["images"])


@pytest.mark.parametrize(
    ("process", "settings"),
    [("flow", {}), ("flow", {"diffusion__shift": 3.0}), ("edm", {}), ("edm", {"diffusion__sigma_data": 0.3})],
    ids=str,
)
def test_the_lines_of_the_card_draw_the_same_images(
    tmp_path: Path, process: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = changed(diffusion__process=process, diffusion__prediction=process, **settings)
    model = unet(config)
    export_pipeline(model, config, tmp_path / "out")
    request = Request(COUNT, SEED, "euler", 50)
    ours = to_uint8(generate(model, config, request))
    noise = torch.stack([torch.randn(1, 8, 8, generator=g) for g in sample_generators(SEED, 0, COUNT)])
    assert far(ours, run_the_card(tmp_path / "out", noise, monkeypatch)) <= 1
    assert ours.std() > 10, "an empty picture would equal an empty picture"
    assert not list((tmp_path / "out").rglob("*.bin"))
    other = changed(diffusion__process=process, diffusion__prediction=process, diffusion__sigma_data=0.9)
    if process == "edm":
        assert far(ours, to_uint8(generate(model, other, request))) > 1, "control"


@pytest.mark.parametrize(
    "settings",
    [{"diffusion__process": "flow"}, {"diffusion__prediction": "flow"}, {"diffusion__process": "edm"}],
    ids=str,
)
def test_a_prediction_that_no_scheduler_takes_is_told(tmp_path: Path, settings: dict[str, Any]) -> None:
    config = changed(**settings)
    with pytest.raises(UsageError, match="No scheduler of diffusers takes a prediction of"):
        export_pipeline(unet(config), config, tmp_path / "out")


def test_the_comparison_tells_images_apart(tmp_path: Path) -> None:
    """Negative control: another schedule, other steps and another seed are each seen."""
    model = unet()
    export_pipeline(model, changed(diffusion__schedule="linear"), tmp_path / "linear")
    export_pipeline(model, CONFIG, tmp_path / "pipeline")
    ours = draw(model, CONFIG, "ddim")
    assert far(ours, draw_with_diffusers(tmp_path / "linear", "ddim")) > 10
    assert far(ours, draw_with_diffusers(tmp_path / "pipeline", "ddim", STEPS + 1)) > 10
    other = to_uint8(generate(model, CONFIG, Request(COUNT, SEED + 1, "ddim", STEPS)))
    assert far(other, draw_with_diffusers(tmp_path / "pipeline", "ddim")) > 10


CONDITIONAL = changed(model__conditional=True)


@pytest.mark.parametrize("label", [0, 2, None])
def test_a_label_is_baked_in(tmp_path: Path, label: int | None) -> None:
    model = unet(CONDITIONAL)
    export_pipeline(model, CONDITIONAL, tmp_path / "pipeline", label)
    theirs = draw_with_diffusers(tmp_path / "pipeline", "ddim")
    assert far(draw(model, CONDITIONAL, "ddim", label=3 if label is None else label), theirs) <= 1
    assert far(draw(model, CONDITIONAL, "ddim", label=1), theirs) > 1, "control: another label is another image"


def test_baking_changes_nothing_but_the_bias() -> None:
    model = unet(CONDITIONAL)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plain = plain_unet(model, 1)
    after = plain.state_dict()
    assert set(before) - set(after) == {"class_embedding.weight"}
    assert [n for n in after if not torch.equal(after[n], before[n])] == ["time_embedding.linear_2.bias"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("label", [-1, 4, 99])
def test_a_label_out_of_range_is_told(tmp_path: Path, label: int) -> None:
    with pytest.raises(UsageError, match=f"--label is {label}, but the labels of this model go from 0 to 2"):
        export_pipeline(unet(CONDITIONAL), CONDITIONAL, tmp_path / "pipeline", label)
    assert not (tmp_path / "pipeline").exists()


def test_a_label_of_an_unconditional_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--label needs a conditional model"):
        export_pipeline(unet(), CONFIG, tmp_path / "pipeline", 1)


def test_spectral_norm_is_folded_in(tmp_path: Path) -> None:
    config = changed(model__spectral_norm=True)
    model = unet(config)
    add_spectral_norm(model)
    checkpoint_blocks(model)
    model.eval()
    names = set(model.state_dict())
    export_pipeline(model, config, tmp_path / "pipeline")
    assert far(draw(model, config, "ddim"), draw_with_diffusers(tmp_path / "pipeline", "ddim")) <= 1
    assert far(draw(unet(config), config, "ddim"), draw_with_diffusers(tmp_path / "pipeline", "ddim")) > 1, "control"
    assert set(model.state_dict()) == names, "the model itself keeps its norms"
    assert model.get_submodule("mid_block.resnets.0.conv1").weight.shape == (16, 16, 3, 3), "and still has its weights"


def test_any_memory_format_can_be_exported(tmp_path: Path) -> None:
    model: Any = unet().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    export_pipeline(model, CONFIG, tmp_path / "pipeline")
    assert far(draw(unet(), CONFIG, "ddim"), draw_with_diffusers(tmp_path / "pipeline", "ddim")) <= 1


def test_the_model_stays_as_it_was(tmp_path: Path) -> None:
    model = unet().train()
    before = {name: value.numpy().tobytes() for name, value in model.state_dict().items()}
    export_pipeline(model, CONFIG, tmp_path / "pipeline")
    assert {name: value.numpy().tobytes() for name, value in model.state_dict().items()} == before
    assert model.training


def test_the_folder_holds_no_pickle_and_says_what_it_is(tmp_path: Path) -> None:
    export_pipeline(unet(), CONFIG, tmp_path / "pipeline")
    files = sorted(str(p.relative_to(tmp_path / "pipeline")) for p in (tmp_path / "pipeline").rglob("*") if p.is_file())
    assert files == [
        "model_index.json",
        "scheduler/scheduler_config.json",
        "unet/config.json",
        "unet/diffusion_pytorch_model.safetensors",
    ]
    scheduler = json.loads((tmp_path / "pipeline/scheduler/scheduler_config.json").read_text())
    assert scheduler["prediction_type"] == "v_prediction"
    assert scheduler["timestep_spacing"] == "trailing"
    assert len(scheduler["trained_betas"]) == 1000


def test_a_foreign_module_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"The model is a Linear; .* model\.safetensors"):
        export_pipeline(nn.Linear(2, 2), CONFIG, tmp_path / "pipeline")
    assert not (tmp_path / "pipeline").exists()


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/pipeline"])
def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str) -> None:
    """diffusers only logs an error when the folder is a file, and writes nothing."""
    (tmp_path / "file").write_text("precious")
    with caplog.at_level(logging.CRITICAL), pytest.raises(UsageError, match=r"(cannot be written|is a file).* -o"):
        export_pipeline(unet(), CONFIG, tmp_path / place)
    assert (tmp_path / "file").read_text() == "precious"


def test_an_export_can_be_trained_further(tmp_path: Path) -> None:
    """`--init DIR` reads what `export` writes."""
    from safelight.model.unet import load_pipeline_unet

    model = unet()
    export_pipeline(model, CONFIG, tmp_path / "pipeline")
    loaded = load_pipeline_unet(tmp_path / "pipeline")
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())


def test_a_full_disk_is_an_error_in_words_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors.torch

    def full(*_: object, **__: object) -> None:
        raise safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(UsageError, match="No space left on device"):
        export_pipeline(unet(), CONFIG, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_an_export_replaces_only_an_export(tmp_path: Path) -> None:
    export_pipeline(unet(), CONFIG, tmp_path / "out")
    export_pipeline(unet(), CONFIG, tmp_path / "out")
    (tmp_path / "out" / "thesis.tex").write_bytes(b"precious")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"holds thesis\.tex, which is not of an export"):
        export_pipeline(unet(), CONFIG, tmp_path / "out")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_an_export_follows_no_link_inside_its_folder(tmp_path: Path) -> None:
    export_pipeline(unet(), CONFIG, tmp_path / "out")
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "out" / "model_index.json").unlink()
    (tmp_path / "out" / "model_index.json").symlink_to(tmp_path / "victim")
    export_pipeline(unet(), CONFIG, tmp_path / "out")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    (tmp_path / "out" / "unet").rename(tmp_path / "elsewhere")
    (tmp_path / "out" / "unet").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"symbolic link|not of an export"):
        export_pipeline(unet(), CONFIG, tmp_path / "out")
