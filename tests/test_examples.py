"""The examples run as their first lines say, with settings that take seconds."""

from __future__ import annotations

import ast
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from fresh_python import FreshPython
from PIL import Image

from safelight.record.reading import read_signal

EXAMPLES = Path(__file__).parents[1] / "examples"
STAND_IN = (
    Path(__file__).parent / "stand_in"
)  # for what denoising-diffusion-pytorch imports and the example never calls

pytestmark = pytest.mark.timeout(1800)  # half a minute alone, and many times that beside others


class Run(Protocol):
    def __call__(self, folder: Path, *words: str) -> str:
        """Runs Python in a folder and returns its last line."""
        ...


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with FreshPython(tmp_path_factory.mktemp("python")) as python:

        def run(folder: Path, *words: str) -> str:
            path = STAND_IN if any("lucidrains" in word for word in words) else None
            code, out, err = python.run(folder, *words, path=path)
            assert code == 0, err[-2000:]
            return out.splitlines()[-1]

        yield run


def test_own_module_trains_and_carries_on(run: Run, tmp_path: Path) -> None:
    words = (str(EXAMPLES / "own_module.py"), "--steps", "2", "--count", "2", "--run", "run")
    picture = run(tmp_path, *words)
    assert picture == os.path.join("run", "samples", "step_00000002.png")
    with Image.open(tmp_path / picture) as image:
        assert image.width > 100
    checkpoint = tmp_path / "run" / "checkpoints" / "step_00000002" / "model.safetensors"
    before = checkpoint.read_bytes()
    assert run(tmp_path, *words) == picture
    assert checkpoint.read_bytes() == before


def test_notebook_style_leaves_a_model_that_diffusers_loads(run: Run, tmp_path: Path) -> None:
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


def test_an_example_that_fails_would_be_noticed(run: Run, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="something went wrong"):
        run(tmp_path, "-c", "raise SystemExit('something went wrong')")


def test_an_interpreter_of_its_own_runs_one_too(tmp_path: Path) -> None:
    words = [sys.executable, str(EXAMPLES / "memory.py")]
    done = subprocess.run(
        words, cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["fits"]), done.stderr[-2000:]
    assert len((EXAMPLES / "memory.py").read_text().splitlines()) < 60


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_imports_what_it_uses(path: Path) -> None:
    """Where the tests run them, more is imported already: parts of a package come by `from`."""
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    plain = {name.name for node in tree if isinstance(node, ast.Import) for name in node.names}
    assert plain <= {"argparse", "pytorch_lightning", "safelight", "torch"}


def test_examples_are_all_tested() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in text] == []


@pytest.mark.parametrize(
    ("example", "steps", "also"),
    [
        ("watch_plain.py", 64, "gradient/norm"),
        ("watch_diffusers.py", 64, "ema/distance"),
        ("watch_lightning.py", 64, "gradient/norm"),
        ("watch_lucidrains.py", 12, "ema/distance"),
        ("track_accelerate.py", 12, "mine/loss"),
    ],
)
def test_loops_of_others_are_watched(run: Run, tmp_path: Path, example: str, steps: int, also: str) -> None:
    assert run(tmp_path, str(EXAMPLES / example), "--steps", str(steps), "--run", "runs/watched") == "runs/watched"
    assert run(tmp_path, "-m", "safelight", "metrics", "runs/watched", "loss/mean", "--json")
    path = tmp_path / "runs" / "watched" / "record.sqlite"
    assert [step for step, _ in read_signal(path, "loss/mean")] == list(range(steps))
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
    assert (status["status"], status["step"]) == ("finished", steps)


@pytest.mark.parametrize(
    ("example", "last"),
    [("debugger.py", "healthy "), ("diversity.py", "missing"), ("parts.py", "[10, 20, 30]")],
)
def test_parts_alone(run: Run, tmp_path: Path, example: str, last: str) -> None:
    assert run(tmp_path, str(EXAMPLES / example)).startswith(last)
    assert len((EXAMPLES / example).read_text().splitlines()) < 60


def test_the_monitoring_of_an_own_loop(run: Run, tmp_path: Path) -> None:
    """Samples, distance, diversity, best step and the report of a foreign loop."""
    best, report = run(
        tmp_path, str(EXAMPLES / "own_loop.py"), "--steps", "6", "--sampling-steps", "2", "--run", "mine"
    ).split()
    assert int(best) in (2, 4, 6)
    assert (tmp_path / report).stat().st_size > 100_000
    folder = tmp_path / "mine"
    names = {path.name for path in (folder / "samples").iterdir()}
    kinds = ("step", "denoising", "raw_and_averaged")
    assert names >= {f"{kind}_0000000{step}.png" for kind in kinds for step in range(1, 7)} | {"timelapse.gif"}
    for signal in ("quality/distance", "quality/distance_error", "diversity/variance"):
        assert [step for step, _ in read_signal(folder / "record.sqlite", signal)] == [1, 3, 5]
    assert len((EXAMPLES / "own_loop.py").read_text().splitlines()) < 60


def test_the_production_loop_continues_where_it_was(run: Run, tmp_path: Path) -> None:
    script = str(EXAMPLES / "production_loop.py")
    assert run(tmp_path, script, "--steps", "6", "--folder", "whole") == "steps [6], refused 0"
    for steps in ("3", "6"):
        assert run(tmp_path, script, "--steps", steps, "--folder", "parted").endswith("refused 0")
    whole, parted = (tmp_path / name / "step_00000006" / "model.safetensors" for name in ("whole", "parted"))
    assert whole.read_bytes() == parted.read_bytes()
    assert len((EXAMPLES / "production_loop.py").read_text().splitlines()) < 60


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_runs_from_its_first_cell_to_its_last(run: Run, tmp_path: Path, path: Path) -> None:
    """Cell by cell in one interpreter, with few steps; the last line of a cell is shown as a kernel shows it."""
    cells = [each for each in json.loads(path.read_text(encoding="utf-8"))["cells"] if each["cell_type"] == "code"]
    assert all(each["outputs"] == [] and each["execution_count"] is None for each in cells), "kept without its outputs"
    script = tmp_path / "cells.py"
    script.write_text("\n".join(as_a_kernel_runs("".join(each["source"])) for each in cells))
    text = script.read_text()
    assert "STEPS = 300" in text
    script.write_text(text.replace("STEPS = 300", "STEPS = 4"))
    run(tmp_path, str(script))
    assert (tmp_path / "report.html").stat().st_size > 100_000
    assert (tmp_path / "pipeline" / "model_index.json").is_file()
    assert json.loads((tmp_path / "runs" / "hot" / "run.json").read_text())["status"] == "refused"


def as_a_kernel_runs(cell: str) -> str:
    """What stands in the last line of a cell is displayed: as HTML, where it can be."""
    tree = ast.parse(cell)
    if not isinstance(last := tree.body[-1], ast.Expr):
        return cell
    shown = ast.unparse(last)
    before = "\n".join(ast.unparse(each) for each in tree.body[:-1])
    return f"{before}\n_ = {shown}\nassert _ is None or getattr(_, '_repr_html_', lambda: repr(_))()"
