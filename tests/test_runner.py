"""A run from its first screen to its last: what the preflight finds ends it, or is reported."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny import Quiet, fingerprints, lose_the_moments, tiny

import safelight
from safelight.cli import main
from safelight.config import Config
from safelight.data.prepare import open_images
from safelight.errors import PreflightError
from safelight.record.history import open_history
from safelight.run import RunFolder
from safelight.runner import smaller_network
from safelight.start import resume, train
from safelight.training.build import build, infer_data_settings

ENOUGH: dict[str, Any] = {"sample.steps": 12, "train.batch_size": 16, "train.preflight": "stop"}


def run(path: Path, **settings: Any) -> Quiet:
    screen = Quiet()
    train(tiny(**ENOUGH | settings), run=path, terminal=screen)
    return screen


def test_the_exit_code_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lose_the_moments(monkeypatch)
    flags = [word for key, value in asdict_of(tiny()).items() for word in ("--set", f"{key}={value}")]
    assert main(["train", "digits", "--run", str(tmp_path / "run"), *flags]) == 3
    said = capsys.readouterr().err
    assert "CHK001 checkpoint.optimizer-lost" in said
    assert "train.preflight=tell" in said


def asdict_of(config: Config) -> dict[str, Any]:
    """A few settings that make a run tiny."""
    model, steps = asdict(config)["model"], config.train.steps
    return {"model.widths": "16", "model.norm_groups": 8, "model.attention": "", "model.conditional": "false",
            "model.layers": model["layers"], "train.steps": steps, "train.batch_size": 16, "train.threads": 1,
            "sample.steps": 12, "evaluate.every": 0}  # fmt: skip


@pytest.mark.parametrize("wanted", ["tell", "off"])
def test_a_run_may_continue_all_the_same(wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_the_moments(monkeypatch)
    screen = run(tmp_path / "run", **{"train.preflight": wanted})
    assert RunFolder(tmp_path / "run").status()["status"] == "finished"
    reported = [line for line in screen.said if "CHK001" in line]
    assert bool(reported) == (wanted == "tell")
    causes = [finding.cause for finding in safelight.diagnose(tmp_path / "run")]
    assert causes == (["checkpoint.optimizer-lost"] if wanted == "tell" else ["loss.undertrained"])


def test_a_refused_run_continues_when_it_is_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        lose_the_moments(patch)
        with pytest.raises(PreflightError):
            run(tmp_path / "run")
    resume(tmp_path / "run", terminal=Quiet())
    assert RunFolder(tmp_path / "run").status()["status"] == "finished"
    assert [finding.cause for finding in safelight.diagnose(tmp_path / "run")] == ["loss.undertrained"]
    run(tmp_path / "healthy")
    assert fingerprints(tmp_path / "run") == fingerprints(tmp_path / "healthy")


def test_a_resumed_run_is_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "run", **{"train.steps": 6, "checkpoint.every": 6})
    lose_the_moments(monkeypatch)
    with pytest.raises(PreflightError, match="CHK001"):
        resume(tmp_path / "run", settings={"train.steps": 12}, force=True, terminal=Quiet())
    assert RunFolder(tmp_path / "run").status()["status"] == "refused"
    with open_history(tmp_path / "run" / "record.sqlite") as history:
        assert history.raw("loss/mean")[0].max() >= 5, "what was trained before is still there"


def few(path: Path, count: int, different: int) -> Path:
    path.mkdir()
    for number in range(count):
        levels = np.random.default_rng(number % different).integers(0, 256, (8, 8), np.uint8)
        Image.fromarray(levels).save(path / f"{number:03}.png")
    return path


def test_what_data_warns_about_is_repeated_once_before_the_first_step(tmp_path: Path) -> None:
    images, path = few(tmp_path / "images", 60, 3), tmp_path / "run"
    said = run(path, **{"data.source": str(images), "train.preflight": "off"}).said
    told = [line for line in said if line.startswith(("Data: ", "More: "))]
    assert told == [
        "Data: Copies: 57, which leaves 3 different images. What is seen twice is learnt by heart first.",
        "Data: Few: 3. A model learns so few images by heart.",
        f"More: safelight data {images}",
    ]
    screen = Quiet()
    resume(path, settings={"train.steps": 8}, force=True, terminal=screen)
    assert not [line for line in screen.said if line.startswith("Data: ")], "not again"


def test_a_healthy_set_is_not_remarked_on(tmp_path: Path) -> None:
    assert not [line for line in run(tmp_path / "run").said if line.startswith("Data: ")]


@pytest.mark.parametrize("different", [1, 3])
def test_copies_are_the_first_finding(different: int, tmp_path: Path) -> None:
    images = few(tmp_path / "images", 64, different)
    run(tmp_path / "run", **{"data.source": str(images), "train.preflight": "tell", "train.steps": 12})
    found = safelight.diagnose(tmp_path / "run")
    assert found[0].cause == "data.duplicates"
    assert "data.same-batch" not in [finding.cause for finding in found]


def test_a_long_training_on_a_cpu_is_offered_a_smaller_network() -> None:
    def offered(seconds: float, **settings: Any) -> str | None:
        config = tiny(**ENOUGH | settings)
        images = open_images(config.data, lambda done, total: None, print)
        setup = build(infer_data_settings(config, images), images, print)
        setup.loader.close()
        return smaller_network(setup, seconds)

    words = offered(9999.0, **{"model.widths": [32, 64, 64], "model.attention": []})
    assert words is not None
    assert "for 1,000 steps (0." in words
    assert words.endswith("--preset digits --image-size 8")
    assert offered(1e-6, **{"model.widths": [32, 64, 64], "model.attention": []}) is None  # soon done
    assert offered(9999.0) is None  # small already
