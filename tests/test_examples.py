"""The examples run as their first lines say, with settings that take seconds."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from safelight.record.reading import read_signal

EXAMPLES = Path(__file__).parents[1] / "examples"
STAND_IN = (
    Path(__file__).parent / "stand_in"
)  # for what denoising-diffusion-pytorch imports and the example never calls

pytestmark = pytest.mark.timeout(1800)  # half a minute alone, and many times that beside others


def run(folder: Path, *words: str) -> str:
    """Runs Python in a folder and returns its last line."""
    surroundings = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    if any("lucidrains" in word for word in words):
        surroundings["PYTHONPATH"] = str(STAND_IN)
    done = subprocess.run([sys.executable, *words], cwd=folder, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


def test_own_module_trains_and_carries_on(tmp_path: Path) -> None:
    words = (str(EXAMPLES / "own_module.py"), "--steps", "2", "--count", "2", "--run", "run")
    picture = run(tmp_path, *words)
    assert picture == os.path.join("run", "samples", "step_00000002.png")
    with Image.open(tmp_path / picture) as image:
        assert image.width > 100
    checkpoint = tmp_path / "run" / "checkpoints" / "step_00000002" / "model.safetensors"
    before = checkpoint.read_bytes()
    assert run(tmp_path, *words) == picture
    assert checkpoint.read_bytes() == before


def test_notebook_style_leaves_a_model_that_diffusers_loads(tmp_path: Path) -> None:
    words = ("--steps", "2", "--count", "2", "--run", "run")
    grid = run(tmp_path, str(EXAMPLES / "notebook_style.py"), *words)
    with Image.open(tmp_path / grid) as image:
        assert image.width > 100
    assert run(tmp_path, "-m", "safelight", "export", "run", "-o", "pipeline") == "pipeline"
    words = ("--count", "2", "--steps", "2", "--out", "images")
    assert run(tmp_path, str(EXAMPLES / "diffusers_load.py"), "pipeline", *words) == "images"
    names = sorted(path.name for path in (tmp_path / "images").iterdir())
    assert names == ["000000.png", "000001.png"]
    with Image.open(tmp_path / "images" / names[0]) as image:
        assert (image.size, image.mode) == ((8, 8), "L")


def test_an_example_that_fails_would_be_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="something went wrong"):
        run(tmp_path, "-c", "raise SystemExit('something went wrong')")


def test_examples_are_all_tested() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in text] == []


@pytest.mark.parametrize(
    ("example", "also"),
    [
        ("watch_plain.py", "gradient/norm"),
        ("watch_diffusers.py", "ema/distance"),
        ("watch_lightning.py", "gradient/norm"),
        ("watch_lucidrains.py", "ema/distance"),
        ("track_accelerate.py", "mine/loss"),
    ],
)
def test_loops_of_others_are_watched(tmp_path: Path, example: str, also: str) -> None:
    assert run(tmp_path, str(EXAMPLES / example), "--steps", "64", "--run", "runs/watched") == "runs/watched"
    assert run(tmp_path, "-m", "safelight", "metrics", "runs/watched", "loss/mean", "--json")
    path = tmp_path / "runs" / "watched" / "record.sqlite"
    assert [step for step, _ in read_signal(path, "loss/mean")] == list(range(64))
    values = [value for _, value in read_signal(path, also)]
    assert values
    assert all(math.isfinite(value) for value in values)
    if example in (
        "watch_plain.py",
        "watch_diffusers.py",
        "watch_lightning.py",
    ):  # there the loss of each sample is known
        assert len(read_signal(path, "loss/level/03")) == 1
    status = json.loads((tmp_path / "runs" / "watched" / "run.json").read_text())
    assert (status["status"], status["step"]) == ("finished", 64)


@pytest.mark.parametrize(
    ("example", "last"),
    [("debugger.py", "healthy "), ("diversity.py", "missing"), ("memory.py", "fits"), ("parts.py", "[10, 20, 30]")],
)
def test_parts_alone(tmp_path: Path, example: str, last: str) -> None:
    assert run(tmp_path, str(EXAMPLES / example)).startswith(last)
    assert len((EXAMPLES / example).read_text().splitlines()) < 60


def test_the_monitoring_of_an_own_loop(tmp_path: Path) -> None:
    """Samples, distance, diversity, best step and the report of a foreign loop."""
    best, report = run(tmp_path, str(EXAMPLES / "own_loop.py"), "--steps", "6", "--run", "mine").split()
    assert int(best) in (2, 4, 6)
    assert (tmp_path / report).stat().st_size > 100_000
    folder = tmp_path / "mine"
    names = {path.name for path in (folder / "samples").iterdir()}
    kinds = ("step", "denoising", "raw_and_averaged")
    assert names >= {f"{kind}_0000000{step}.png" for kind in kinds for step in range(1, 7)} | {"timelapse.gif"}
    for signal in ("quality/distance", "quality/distance_error", "diversity/variance"):
        assert [step for step, _ in read_signal(folder / "record.sqlite", signal)] == [1, 3, 5]
    assert len((EXAMPLES / "own_loop.py").read_text().splitlines()) < 60


def test_the_production_loop_continues_where_it_was(tmp_path: Path) -> None:
    script = str(EXAMPLES / "production_loop.py")
    assert run(tmp_path, script, "--steps", "6", "--folder", "whole") == "steps [6], refused 0"
    for steps in ("3", "6"):
        assert run(tmp_path, script, "--steps", steps, "--folder", "parted").endswith("refused 0")
    whole, parted = (tmp_path / name / "step_00000006" / "model.safetensors" for name in ("whole", "parted"))
    assert whole.read_bytes() == parted.read_bytes()
    assert len((EXAMPLES / "production_loop.py").read_text().splitlines()) < 60
