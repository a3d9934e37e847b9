from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from commands import TINY, ask, refused
from PIL import Image

from safelight import __version__
from safelight.checkpoints import manifest

CUDA = pytest.mark.skipif(
    torch.cuda.is_available(), reason="needs a machine without CUDA: CUDA_VISIBLE_DEVICES= hides it"
)


LONG = "a" * 300
WORDS = [
    # commands and flags
    (2, ["trian"], ["There is no command 'trian'", "Did you mean 'train'?"]),
    (2, ["--steps", "5"], ["There is no command '--steps'"]),
    (2, ["train", "--stpes", "5"], ["Unrecognized options: --stpes", "--steps"]),
    (2, ["train", "--steps"], ["Missing value for argument '--steps'"]),
    (2, ["train", "one", "two"], ["Unrecognized options: two"]),
    (2, ["resume"], ["RUN"]),
    (2, ["sample"], ["RUN"]),
    (2, ["export"], ["RUN"]),
    # values
    (2, ["train", "--steps", "many"], ["train.steps is 'many'", "whole number"]),
    (2, ["train", "--steps", "1.5"], ["train.steps is '1.5'", "whole number"]),
    (2, ["train", "--steps", "-5"], ["train.steps is -5", "greater than 0"]),
    (2, ["train", "--steps", "0"], ["train.steps is 0", "greater than 0"]),
    (2, ["train", "--steps", ""], ["train.steps is ''", "whole number"]),
    (2, ["train", "--lr", "nan"], ["optimizer.lr is 'nan'", "a number"]),
    (2, ["train", "--lr", "inf"], ["optimizer.lr is 'inf'", "a number"]),
    (2, ["train", "--lr", "1e999"], ["optimizer.lr is '1e999'", "a number"]),
    (2, ["train", "--lr", "-1e-4"], ["optimizer.lr is -0.0001", "greater than 0"]),
    (2, ["train", "--lr", "1" + "0" * 400], ["optimizer.lr is '1000", "a number"]),
    (2, ["train", "--batch-size", "30", "--accumulate", "4"], ["train.batch_size is 30", "Use 28 or 32"]),
    (2, ["train", "--seed", "-1"], ["train.seed is -1", "not be negative"]),
    (2, ["train", "--precision", "fp8"], ["train.precision is 'fp8'", "one of fp32, bf16, fp16"]),
    (2, ["train", "--set", "train.steps"], ["--set takes KEY=VALUE", "train.steps=500"]),
    (2, ["train", "--set", "train.stepps=5"], ["no setting 'train.stepps'", "Did you mean 'train.steps'?"]),
    (2, ["train", "--set", "optimizer.beta1=1"], ["optimizer.beta1 is 1", "below 1"]),
    (2, ["train", "--set", "optimizer.weight_decay=nan"], ["optimizer.weight_decay is 'nan'", "a number"]),
    (2, ["train", "--image-size", "7"], ["data.image_size is 7", "multiple of 2", "Use 6 or 8"]),
    (2, ["train", "--preset", "digit"], ["--preset is 'digit'", "Did you mean 'digits'?"]),
    (2, ["train", "--config", "nothing.yaml"], ["nothing.yaml cannot be read", "No such file"]),
    (2, ["train", "--config", "empty"], ["empty cannot be read", "Is a directory"]),
    (2, ["train", "--config", "words.txt"], ["words.txt holds a str"]),
    (2, ["train", "--config", LONG], ["cannot be read", "too long"]),
    # numbers without end, names without letters
    (2, ["data", "--image-size", "2147483648"], ["data.image_size is 2.14748e+09", "at most 16,384"]),
    (2, ["estimate", "--batch-size", "1e18"], ["train.batch_size is 1e+18", "at most 1,000,000"]),
    (2, ["train", "--workers", "1e18"], ["data.workers is 1e+18", "at most 1,024"]),
    (2, ["train", "--set", "train.threads=1e18"], ["train.threads is 1e+18", "at most 1,024"]),
    (2, ["train", "--set", "diffusion.timesteps=1e18"], ["diffusion.timesteps is 1e+18", "at most 1,000,000"]),
    (2, ["train", "--set", "ema.snapshots=1e18"], ["ema.snapshots is 1e+18", "at most 10,000"]),
    (2, ["train", "--set", "sample.count=1e18"], ["sample.count is 1e+18", "at most 10,000"]),
    (2, ["train", "--set", "train.seed=1e30"], ["train.seed is 1e+30", "at most"]),
    (2, ["train", "--set", "data.classes=-3"], ["data.classes is -3", "not be negative"]),
    (2, ["train", "--set", "model.widths=" + "8 " * 40], ["model.widths has 40 levels", "at most 12"]),
    (2, ["train", "--set", "data.source=a\0b"], ["data.source is", "no file or device"]),
    (2, ["train", "--set", "data.source=\ud800"], ["data.source is", "no file or device"]),
    (2, ["train", "x" * 5000], ["longer than 4,096 characters"]),
    (2, ["data", "-o", ""], ["a file or folder needs a name"]),
    (2, ["train", "--run", ""], ["a file or folder needs a name"]),
    (2, ["train", "--run="], ["a file or folder needs a name"]),
    (2, ["resume", " "], ["a file or folder needs a name"]),
    (2, ["compare", "", "x"], ["Error parsing RUN"]),
    (2, ["dashboard", "empty", "--host", "ü..x"], ["cannot listen on ü..x"]),
    (2, ["dashboard", "empty", "--host", "x" * 300], ["cannot listen on"]),
    (2, ["dashboard", "empty", "--host", "a\0b"], ["cannot listen on"]),
    (2, ["dashboard", "empty", "--port", "1e18"], ["--port is 1e18"]),
    (2, ["dashboard", "empty", "--idle", "1e300"], ["--idle is 1e+300", "at most"]),
    # data
    (3, ["train", "nothing-here"], ["'nothing-here'", "no file or folder", "Give a known set"]),
    (3, ["train", "digit"], ["Did you mean 'digits'?"]),
    (3, ["train", "empty"], ["empty should hold images", "is empty", "Put images into it"]),
    (3, ["train", "words.txt"], ["words.txt is no idx file", "Give an idx file"]),
    (3, ["train", LONG], ["no file or folder"]),
    # places
    (2, ["train", "--run", "words.txt", *TINY], ["words.txt cannot be made", "Not a directory", "another --run"]),
    (2, ["train", "--run", "words.txt/x", *TINY], ["cannot be made", "Not a directory", "another --run"]),
    (2, ["train", "--run", "/proc/x", *TINY], ["/proc/x cannot be made", "another --run"]),
    (2, ["train", "--run", LONG, *TINY], ["cannot be made", "too long"]),
    (2, ["train", "--init", "empty", *TINY], ["empty holds no diffusers model"]),
    # runs
    (2, ["resume", "nothing-here"], ["nothing-here is no folder", "runs/latest"]),
    (2, ["resume", "empty"], ["empty has no config.yaml", "safelight train --run empty"]),
    (2, ["resume", "words.txt"], ["words.txt is no folder"]),
    (2, ["resume", LONG], ["is no folder"]),
    (2, ["sample", "empty"], ["empty has no config.yaml"]),
    (2, ["export", "empty"], ["empty has no config.yaml"]),
    # devices
    pytest.param(2, ["train", "--device", "cuda"], ["train.device is 'cuda'", "no CUDA", "auto, cpu"], marks=CUDA),
    pytest.param(2, ["train", "--device", "cuda:7"], ["train.device is 'cuda:7'"], marks=CUDA),
    (2, ["train", "--device", "tpu"], ["train.device is 'tpu'", "no device", "auto"]),
    (2, ["train", "--device", ""], ["train.device is ''"]),
]


@pytest.mark.parametrize(
    ("code", "arguments", "words"), WORDS, ids=lambda v: " ".join(v)[:60] if isinstance(v, list) else ""
)
def test_refused_in_words(
    here: Path, capsys: pytest.CaptureFixture[str], code: int, arguments: list[str], words: list[str]
) -> None:
    refused(capsys, code, words, *arguments)
    assert (here / "words.txt").read_text() == "precious"
    assert list((here / "empty").iterdir()) == []


# {run} has no labels, {labelled} has ten
OF_A_RUN = [
    (2, ["train", "--run", "{run}", *TINY], ["already holds a run", "safelight resume", "another --run"]),
    (2, ["sample", "{run}", "-n", "0"], ["--count is 0", "at least 1"]),
    (2, ["sample", "{run}", "-n", "many"], ["--count is 'many'", "whole number"]),
    (2, ["sample", "{run}", "--seed", "-1"], ["--seed is -1", "at least 0"]),
    (2, ["sample", "{run}", "--sampler", "ddmi"], ["--sampler is 'ddmi'", "ddim, ddpm, dpm-solver++"]),
    (2, ["sample", "{run}", "--sample-steps", "5000"], ["--sample-steps is 5000", "1000 timesteps"]),
    (2, ["sample", "{run}", "--sample-steps", "0"], ["--sample-steps is 0", "at least 1"]),
    (2, ["sample", "{run}", "--step", "77"], ["no checkpoint of step 77", "It has:", "6."]),
    (2, ["sample", "{run}", "--step", "-1"], ["--step is -1"]),
    (2, ["sample", "{run}", "--ema", "0.5"], ["--ema is 0.5", "between 0.001 and 0.28"]),
    (2, ["sample", "{run}", "--ema", "nan"], ["--ema is 'nan'"]),
    (2, ["sample", "{run}", "--ema", "0.1", "--raw"], ["--raw and --ema exclude each other"]),
    (2, ["sample", "{run}", "--label", "1"], ["--label needs a conditional model"]),
    (2, ["sample", "{run}", "--guidance", "2"], ["--guidance is 2", "without labels", "leave --guidance out"]),
    (2, ["sample", "{run}", "--guidance", "nan"], ["--guidance is 'nan'", "a number"]),
    (2, ["sample", "{labelled}", "--label", "11"], ["--label is '11'", "none and 0 to 9"]),
    (2, ["sample", "{labelled}", "--label", "-1"], ["--label is '-1'", "none and 0 to 9"]),
    (2, ["sample", "{labelled}", "--label", "²"], ["--label is '²'"]),
    (2, ["sample", "{labelled}", "--label", "9" * 4000], ["--label is '999", "none and 0 to 9"]),
    (2, ["sample", "{run}", "-n", "1e18"], ["--count is 1e18", "at most 1,000,000"]),
    (2, ["sample", "{run}", "--seed", "1e30"], ["--seed is 1e30", "at most"]),
    (2, ["sample", "{run}", "--guidance", "1e300"], ["--guidance is 1e+300", "at most"]),
    (2, ["metrics", "{run}", "--first", "1e30"], ["--first is 1e30", "at most"]),
    (2, ["metrics", "{run}", "--points", "1e18"], ["--points is 1e18", "at most"]),
    (2, ["evaluate", "{run}", "-n", "1e18"], ["--count is 1e18", "at most"]),
    (2, ["sample", "{labelled}", "--label", "cat"], ["--label is 'cat'", "none and 0 to 9"]),
    (2, ["sample", "{run}", "-n", "1", "-o", "words.txt"], ["words.txt cannot be written", "another place with -o"]),
    (2, ["sample", "{run}", "-n", "1", "-o", "words.txt/x.png"], ["cannot be written", "another place with -o"]),
    (2, ["sample", "{run}", "-n", "1", "-o", "/proc/x.png"], ["/proc/x.png cannot be written"]),
    (2, ["sample", "{run}", "-n", "1", "-o", f"{LONG}.png"], ["cannot be written", "too long"]),
    pytest.param(2, ["sample", "{run}", "--device", "cuda"], ["no CUDA"], marks=CUDA),
    (2, ["export", "{run}", "--label", "1"], ["--label needs a conditional model"]),
    (2, ["export", "{run}", "-o", "words.txt"], ["words.txt", "-o"]),
    (2, ["export", "{run}", "--step", "5.5"], ["--step is '5.5'", "whole number"]),
    (
        2,
        ["resume", "{run}", "--steps", "9"],
        ["Changed: train.steps from 6 to 9", "change what this run means", "--force"],
    ),
    (2, ["resume", "{run}", "--set", "train.seed=1"], ["train.seed from 0 to 1", "--force"]),
    (2, ["resume", "{run}", "--set", "train.sede=1"], ["Did you mean 'train.seed'?"]),
    pytest.param(2, ["resume", "{run}", "--device", "cuda"], ["no CUDA"], marks=CUDA),
]


def tree(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


@pytest.mark.parametrize(
    ("code", "arguments", "words"), OF_A_RUN, ids=lambda v: " ".join(v)[:60] if isinstance(v, list) else ""
)
def test_refused_of_a_run(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    trained_run: Path,
    conditional_run: Path,
    code: int,
    arguments: list[str],
    words: list[str],
) -> None:
    before = tree(trained_run)
    filled = [word.format(run=trained_run, labelled=conditional_run) for word in arguments]
    refused(capsys, code, words, *filled)
    assert tree(trained_run) == before, "nothing of the run is touched"
    assert (here / "words.txt").read_text() == "precious"


def test_the_healthy_run_samples_exports_and_resumes(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Negative control of everything below."""
    assert ask(capsys, "sample", str(copied), "-n", "2", "-o", "out.png")[:2] == (0, "out.png\n")
    assert ask(capsys, "sample", str(copied), "-n", "2", "-o", "images", "--ema", "0.2")[:2] == (0, "images\n")
    assert ask(capsys, "export", str(copied), "-o", "pipeline")[:2] == (0, "pipeline\n")
    assert ask(capsys, "resume", str(copied))[:2] == (0, f"{copied}\n")
    with Image.open("out.png") as page:
        assert page.width > 8
    assert len(list(Path("images").glob("*.png"))) == 2
    assert Path("pipeline/model_index.json").is_file()


class Bomb:
    """Leaves a file behind if it is ever unpickled."""

    def __reduce__(self) -> tuple:
        return os.mkdir, ("unpickled",)


def _plant_pickle(checkpoint: Path, *, honest_manifest: bool) -> None:
    target = checkpoint / "model.safetensors"
    target.write_bytes(pickle.dumps(Bomb()))
    if honest_manifest:  # whoever can write the file can also write its hash
        body = json.loads((checkpoint / "manifest.json").read_text())
        del body["sha256"]
        for entry in body["files"]:
            if entry["name"] == target.name:
                entry |= {"size": target.stat().st_size, "sha256": hashlib.sha256(target.read_bytes()).hexdigest()}
        (checkpoint / "manifest.json").write_bytes(manifest.seal(body))


@pytest.mark.parametrize("honest_manifest", [False, True])
@pytest.mark.parametrize("verb", ["sample", "export", "resume"])
def test_a_pickle_called_safetensors_is_never_opened(
    copied: Path, capsys: pytest.CaptureFixture[str], verb: str, honest_manifest: bool
) -> None:
    checkpoints = sorted((copied / "checkpoints").glob("step_*"))
    assert checkpoints
    for checkpoint in checkpoints:
        _plant_pickle(checkpoint, honest_manifest=honest_manifest)
    before = tree(copied)
    refused(capsys, 1, ["No checkpoint", "can be loaded", "model.safetensors"], verb, str(copied))
    assert not Path("unpickled").exists()
    if verb != "resume":  # which sets damaged ones aside
        assert tree(copied) == before, "reading changes nothing"


def test_one_damaged_checkpoint_is_passed_over(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints = sorted((copied / "checkpoints").glob("step_*"))
    assert len(checkpoints) >= 2
    _plant_pickle(checkpoints[-1], honest_manifest=True)
    code, _, err = ask(capsys, "sample", str(copied), "-n", "1", "-o", "out.png")
    assert code == 0
    assert f"{checkpoints[-1].name} cannot be used" in err
    assert not Path("unpickled").exists()


def test_the_bomb_is_live(here: Path) -> None:
    """Negative control: unpickling it does leave a trace."""
    pickle.loads(pickle.dumps(Bomb()))
    assert (here / "unpickled").is_dir()


def change_config(run: Path, change) -> None:
    settings = yaml.safe_load((run / "config.yaml").read_text())
    change(settings)
    (run / "config.yaml").write_text(yaml.safe_dump(settings))


@pytest.mark.parametrize("verb", ["sample", "export", "resume"])
def test_a_config_of_another_version_names_both(copied: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    change_config(copied, lambda settings: settings["train"].update(stepps=5))
    status = json.loads((copied / "run.json").read_text())
    (copied / "run.json").write_text(json.dumps(status | {"versions": {"safelight": "9.9"}}))
    words = [
        "no setting 'train.stepps'",
        "Did you mean 'train.steps'?",
        "made by safelight 9.9",
        f"this is {__version__}",
    ]
    refused(capsys, 2, words, verb, str(copied))


DAMAGE = [
    ("config.yaml", b"", 2, ["does not say data.channels"]),
    ("config.yaml", b"train: {steps: 6", 2, ["not valid YAML"]),
    ("config.yaml", b"train: {steps: many}", 2, ["train.steps is 'many'"]),
    ("config.yaml", b"\0" * 100, 2, ["not valid YAML"]),
]


@pytest.mark.parametrize(("name", "content", "code", "words"), DAMAGE)
@pytest.mark.parametrize("verb", ["sample", "export", "resume"])
def test_a_damaged_run_is_told(
    copied: Path, capsys: pytest.CaptureFixture[str], verb: str, name: str, content: bytes, code: int, words: list[str]
) -> None:
    (copied / name).write_bytes(content)
    refused(capsys, code, words, verb, str(copied))


OTHER_KINDS = [b"", b"[]", b"no json", b"5", b"[" * 200_000, b'{"a":' * 200_000, b'{"data": 5}', b'{"versions": 7}',
               b'{"data": {"class_names": 5}}', b'{"evaluation": {"step": []}}', b'{"failures": [5], "status": []}',
               b'{"step": "x", "seconds": [], "journal": 5, "asked_channels": "x", "created": {}}']  # fmt: skip


@pytest.mark.parametrize("content", OTHER_KINDS, ids=lambda content: content[:30])
@pytest.mark.parametrize("verb", ["sample", "resume"])
def test_a_damaged_status_costs_nothing(
    copied: Path, capsys: pytest.CaptureFixture[str], verb: str, content: bytes
) -> None:
    (copied / "run.json").write_bytes(content)
    assert ask(capsys, verb, str(copied), *(["-n", "1"] if verb == "sample" else []))[0] == 0


@pytest.mark.parametrize("verb", ["sample", "export", "resume"])
def test_a_checkpoint_of_another_model_is_told(copied: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    change_config(copied, lambda settings: settings["model"].update(widths=[24]))
    refused(capsys, 1, ["is not of this model", "have another shape"], verb, str(copied))


@pytest.mark.parametrize(
    ("verb", "words"), [("sample", ["no checkpoint yet", "safelight resume"]), ("export", ["no checkpoint yet"])]
)
def test_a_run_without_checkpoints(
    copied: Path, capsys: pytest.CaptureFixture[str], verb: str, words: list[str]
) -> None:
    shutil.rmtree(copied / "checkpoints")
    refused(capsys, 1, words, verb, str(copied))


@pytest.mark.parametrize("content", [b"[" * 200_000, b"5", b'{"sample_size": []}'])
def test_a_damaged_architecture_ends_in_words(copied: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    """Which is read of a run that was fine-tuned from a pipeline."""
    change_config(copied, lambda settings: settings["model"].update(init="gone"))
    (copied / "model.json").write_bytes(content)
    code, _, err = ask(capsys, "sample", str(copied), "-n", "1")
    assert code in (1, 2)
    assert "Traceback" not in err
    assert "handle" not in err


STRANGERS = ["samples/step_00000020 (copy).png", "samples/step_.png", "samples/step_²².png", "checkpoints/step_x",
             "checkpoints/notes.txt", "checkpoints/step_00000009", "ema/step_00000004 (copy)",
             "ema/notes.txt"]  # fmt: skip


def test_strangers_in_a_run_end_no_command(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in STRANGERS:
        (copied / name).write_bytes(b"a copy that somebody made")
    for command in (["resume"], ["sample", "-n", "1"], ["report"], ["doctor"], ["export"], ["export", "--ema", "0.2"]):
        code, _, err = ask(capsys, command[0], str(copied), *command[1:])
        assert code == 0, err
