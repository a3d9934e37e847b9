"""Fine-tuning: what is loaded is what is trained, and a pipeline for another process is refused with the cure."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DDPMPipeline, DDPMScheduler, EDMEulerScheduler, FlowMatchEulerDiscreteScheduler
from tiny import Crash, Quiet, fingerprints, tiny

from safelight import opened, start
from safelight.data.prepare import open_images
from safelight.errors import UsageError
from safelight.export import export_pipeline
from safelight.training.build import build, infer_data_settings


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fine-tune")
    run = start.train(tiny(train__steps=4), run=folder / "run", terminal=Quiet())
    loaded = opened.load_model(run.path)
    export_pipeline(loaded.model, loaded.config, folder / "pipeline")
    return folder / "pipeline"


def test_training_begins_with_the_weights_of_the_pipeline(pipeline: Path) -> None:
    config = tiny(model__init=str(pipeline))
    images = open_images(config.data)
    model = build(infer_data_settings(config, images), images, print).state.model
    for name, value in DDPMPipeline.from_pretrained(pipeline).unet.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


def test_run_resumes_when_the_pipeline_is_gone(pipeline: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(pipeline, tmp_path / "copy")
    start.train(tiny(model__init=str(copy)), run=tmp_path / "whole", terminal=Quiet())
    with pytest.raises(Crash):
        start.train(tiny(model__init=str(copy)), run=tmp_path / "broken", terminal=Quiet(crash_after=5))
    shutil.rmtree(copy)
    start.resume(tmp_path / "broken", terminal=Quiet())
    assert fingerprints(tmp_path / "broken") == fingerprints(tmp_path / "whole")


def edited(pipeline: Path, out: Path, **scheduler: Any) -> str:
    shutil.copytree(pipeline, out)
    DDPMScheduler(**({"prediction_type": "v_prediction"} | scheduler)).save_pretrained(out / "scheduler")
    return str(out)


@pytest.mark.parametrize(
    ("scheduler", "cure"),
    [
        ({"beta_schedule": "squaredcos_cap_v2"}, None),
        ({"beta_schedule": "linear"}, "--set diffusion.schedule=linear"),
        ({"beta_schedule": "squaredcos_cap_v2", "prediction_type": "epsilon"}, "--set diffusion.prediction=epsilon"),
        ({"beta_schedule": "squaredcos_cap_v2", "num_train_timesteps": 100}, "--set diffusion.timesteps=100"),
        ({"beta_schedule": "linear", "beta_end": 0.5}, "none of cosine"),
        ({"beta_schedule": "linear", "rescale_betas_zero_snr": True}, "diffusion.zero_terminal_snr=true"),
    ],
)
def test_other_process_is_refused_with_its_cure(
    scheduler: dict[str, Any], cure: str | None, pipeline: Path, tmp_path: Path
) -> None:
    config = tiny(model__init=edited(pipeline, tmp_path / "pipe", **scheduler))
    images = open_images(config.data)
    if cure is None:
        build(infer_data_settings(config, images), images, print)
        return
    with pytest.raises(UsageError, match=re.escape(cure)):
        build(infer_data_settings(config, images), images, print)


FLOW = {"diffusion__process": "flow", "diffusion__prediction": "flow"}
EDM = {"diffusion__process": "edm", "diffusion__prediction": "edm"}


@pytest.mark.parametrize(
    ("theirs", "ours", "cure"),
    [
        (FlowMatchEulerDiscreteScheduler(), FLOW, None),
        (FlowMatchEulerDiscreteScheduler(shift=3.0), FLOW, None),
        (FlowMatchEulerDiscreteScheduler(), {}, "--set diffusion.process=flow --set diffusion.prediction=flow"),
        (EDMEulerScheduler(), EDM, None),
        (EDMEulerScheduler(sigma_data=0.3), EDM, "--set diffusion.sigma_data=0.3"),
        (EDMEulerScheduler(), FLOW, "--set diffusion.process=edm --set diffusion.prediction=edm"),
        (DDPMScheduler(), FLOW, "--set diffusion.process=vp"),
    ],
    ids=str,
)
def test_flow_and_edm_are_told_from_other_processes(
    theirs: Any, ours: dict[str, Any], cure: str | None, pipeline: Path, tmp_path: Path
) -> None:
    shutil.copytree(pipeline, tmp_path / "pipe")
    shutil.rmtree(tmp_path / "pipe" / "scheduler")
    theirs.save_pretrained(tmp_path / "pipe" / "scheduler")
    config = tiny(model__init=str(tmp_path / "pipe"), **ours)
    images = open_images(config.data)
    if cure is None:
        build(infer_data_settings(config, images), images, print)
        return
    with pytest.raises(UsageError, match=re.escape(cure)):
        build(infer_data_settings(config, images), images, print)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"data__channels": 3}, "--set data.channels=1"),
        ({"model__conditional": True}, "knows 0 labels"),
    ],
)
def test_other_images_are_refused(settings: dict[str, Any], words: str, pipeline: Path) -> None:
    config = tiny(model__init=str(pipeline), **settings)
    images = open_images(config.data)
    with pytest.raises(UsageError, match=re.escape(words)):
        build(infer_data_settings(config, images), images, print)


def test_scheduler_file_that_is_no_json_is_told_in_words(pipeline: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(pipeline, tmp_path / "copy")
    (copy / "scheduler" / "scheduler_config.json").write_text(json.dumps([1]))
    config = tiny(model__init=str(copy))
    images = open_images(config.data)
    with pytest.raises(UsageError, match="settings are expected"):
        build(infer_data_settings(config, images), images, print)
