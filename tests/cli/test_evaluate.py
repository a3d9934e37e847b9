"""safelight evaluate: a run against what it was trained on, and two sets of images against each other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import ask, refused
from PIL import Image

from safelight.checkpoints.folder import steps
from safelight.checkpoints.reader import load
from safelight.cli.flags.choices import best_step
from safelight.config.tree import Data
from safelight.data.sources.shapes import shapes
from safelight.evaluate.features import Extractor, load_extractor
from safelight.evaluate.networks.weights import SOURCES

FIGURES = ["precision", "recall", "density", "coverage", "variance", "distance", "vendi", "modes", "largest mode",
           "different modes"]  # fmt: skip
KEYS = {
    "of", "verdict", "kind", "over_gaussian", "label", "distance", "unbiased", "kernel", "count", "reference_count",
    "figures", "kinds", "gaussian", "copies", "extractor",
}  # fmt: skip
FEW = ["-n", "16", "--components", "4"]


@cache
def loaded_once(name: str, **how: Any) -> Extractor:
    return load_extractor(name, **how)


@pytest.fixture(autouse=True)
def few_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested here does not depend on how many real images there are, nor on how often weights are read."""
    monkeypatch.setattr("safelight.assessment.load_extractor", lambda name, say, **how: loaded_once(name, **how))
    monkeypatch.setattr("safelight.assessment.REFERENCES", 120)
    monkeypatch.setattr("safelight.assessment.MAX_SEARCHED_IMAGES", 150)


@pytest.fixture(scope="module")
def evaluated(train_tiny: Callable[..., Path]) -> Path:
    """A run that was evaluated twice, and keeps the newest checkpoint and the best."""
    settings = {"evaluate.every": 3, "evaluate.samples": 32, "evaluate.components": 4, "evaluate.references": 120,
                "sample.count": 8, "checkpoint.keep_last": 1}  # fmt: skip
    return train_tiny("evaluated", **settings)


@pytest.fixture(scope="module")
def piles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two draws of one kind, 6 images each."""
    found = tmp_path_factory.mktemp("piles")
    pixels = np.concatenate([part for part, _ in shapes(Data(source="shapes:12", image_size=16)).chunks()])
    for place, one in (("first", pixels[:6]), ("second", pixels[6:])):
        (found / place).mkdir()
        for number, picture in enumerate(one):
            Image.fromarray(picture).save(found / place / f"{number:02}.png")
    return found / "first", found / "second"


# A run


def test_the_page_of_a_run(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(capsys, "evaluate", str(trained_run), *FEW)
    assert code == 0, err
    assert str(trained_run) in out
    assert "\nFD-lite0 " in out
    assert "FD-lite0-pca4, bias removed" in out
    assert all(f"\n{name} " in out for name in [*FIGURES, "kernel", "copies"])
    assert "16 samples, 120 real images; lite0 at" in out
    assert "nan" not in out.split()
    assert "Traceback" not in err


def test_the_json_of_a_run(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(capsys, "evaluate", str(trained_run), "--json", "--count=16", "--components=0")
    assert code == 0, err
    found = json.loads(out)
    assert found.keys() == KEYS
    assert found["of"] == [str(trained_run)]
    assert (found["label"], found["count"], found["reference_count"]) == ("FD-lite0", 16, 120)
    assert list(found["figures"]) == FIGURES
    assert found["copies"]["held_out"] is True
    assert found["extractor"].keys() == {
        "extractor", "label", "dimension", "side", "resize", "weights", "pixels", "path", "precision"
    }  # fmt: skip
    assert found["extractor"]["extractor"] == "lite0"
    assert len(found["extractor"]["weights"]) == 64
    assert found["unbiased"]["dimension"] == 1280
    assert not found["unbiased"]["trusted"], "16 samples in 1,280 dimensions"


def test_the_seed_decides_and_nothing_else_does(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def distance(*more: str) -> float:
        code, out, err = ask(capsys, "evaluate", str(trained_run), "--json", *FEW, *more)
        assert code == 0, err
        return json.loads(out)["distance"]["value"]

    usual = distance()
    assert distance("--seed=0") == usual
    assert distance("--seed=1") != usual
    assert distance("--sampler=ddim", "--sample-steps=2", "--raw") != usual


def test_the_noise_is_not_that_of_the_runs_own_evaluations(
    trained_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from safelight import assessment
    from safelight.generate import Request, generate

    asked: list[Request] = []
    monkeypatch.setattr(assessment, "generate", lambda *given, **how: asked.append(given[2]) or generate(*given, **how))
    assert ask(capsys, "evaluate", str(trained_run), "--json", *FEW)[0] == 0
    [request] = asked
    assert request.count == 16
    assert request.seed != 0


def test_the_picture_of_the_closest_pairs(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "pairs.PNG"
    code, _, err = ask(capsys, "evaluate", str(trained_run), *FEW, "-o", str(out))
    assert code == 0, err
    with Image.open(out) as image:
        assert image.format == "PNG"
        assert image.width > 8 * 64
    assert [path.name for path in out.parent.iterdir()] == ["pairs.PNG"]


def test_the_best_checkpoint(evaluated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newest = load(evaluated / "checkpoints" / "step_00000006").state
    best = newest["best_step"]
    assert newest["best_evaluated"]
    assert best_step(evaluated) == best
    assert best in steps(evaluated / "checkpoints")
    answers = []
    for step in ("best", str(best)):
        code, out, err = ask(capsys, "evaluate", str(evaluated), "--json", *FEW, "--step", step)
        assert code == 0, err
        answers.append(json.loads(out))
    assert answers[0] == answers[1]


# Two piles


def test_two_folders(piles: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    first, second = map(str, piles)
    code, out, err = ask(capsys, "evaluate", first, second, "--components=2")
    assert code == 0, err
    assert f"{first} against {second}" in out
    assert "6 samples, 6 real images; lite0 at" in out
    code, out, _ = ask(capsys, "evaluate", first, second, "--components=2", "--json")
    assert code == 0
    found = json.loads(out)
    assert found.keys() == KEYS
    assert found["of"] == [first, second]
    assert (found["count"], found["reference_count"], found["label"]) == (6, 6, "FD-lite0")
    assert found["copies"] is None
    assert found["figures"] == {}, "too few for them"


def test_the_count_is_of_each_pile(piles: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(capsys, "evaluate", str(piles[0]), "digits", "--components=2", "--json", "-n=5")
    assert code == 0, err
    assert (json.loads(out)["count"], json.loads(out)["reference_count"]) == (5, 5)


def test_other_images_are_farther_than_the_same_kind(
    piles: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), np.uint8)
    for number, pixels in enumerate(noise):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    distances = []
    for pile in (piles[0], tmp_path):
        code, out, err = ask(capsys, "evaluate", str(pile), str(piles[1]), "--components=2", "--json")
        assert code == 0, err
        distances.append(json.loads(out)["kernel"]["value"])
    assert distances[1] > 3 * abs(distances[0])


def test_a_broken_file_is_told_and_left_out(
    piles: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pile = Path(shutil.copytree(piles[0], tmp_path / "pile"))
    (pile / "03.png").write_bytes(b"broken")
    code, out, err = ask(capsys, "evaluate", str(pile), str(piles[1]), "--components=2", "--json")
    assert code == 0
    assert "Left out 03.png" in err
    assert json.loads(out)["count"] == 5


# What is refused


@pytest.fixture
def places(trained_run: Path, piles: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with a run, two piles, an empty folder and one with too few images; no other weights."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(trained_run)
    for name, place in zip(("first", "second"), piles, strict=True):
        (tmp_path / name).symlink_to(place)
    (tmp_path / "empty").mkdir()
    (tmp_path / "few").mkdir()
    for name in ("00.png", "01.png"):
        shutil.copy(piles[0] / name, tmp_path / "few" / name)
    (tmp_path / "words.pth").write_text("no weights")
    monkeypatch.delenv("SAFELIGHT_WEIGHTS", raising=False)
    return tmp_path


REFUSED = [
    (2, [], ["takes a run, or two sets of images", "safelight evaluate runs/first", "samples/ photos/"]),
    (2, ["run", "first", "second"], ["takes a run, or two sets of images"]),
    (2, ["empty"], ["empty has no config.yaml"]),
    (2, ["nowhere"], ["nowhere is no folder"]),
    (2, ["run", "--features=vgg"], ["--features is 'vgg'", "lite0", "inception"]),
    (2, ["first", "second", "--features=vgg"], ["--features is 'vgg'", "lite0", "inception"]),
    (2, ["run", "--resize=nearest", "-n=8"], ["no way of resizing called 'nearest'", "tf1, clean, bilinear"]),
    (2, ["run", "--components=-1"], ["--components is -1", "at least 0"]),
    (2, ["run", "--components=all"], ["--components is 'all'", "whole number"]),
    (2, ["run", "--step=99"], ["no checkpoint of step 99"]),
    (2, ["run", "--step=worst"], ["--step is 'worst'", "whole number"]),
    (2, ["run", "--raw", "--ema=0.1"], ["--raw and --ema exclude each other"]),
    (2, ["run", "--guidance=3"], ["--guidance is 3", "trained without labels"]),
    (2, ["run", "--sampler=unipc"], ["--sampler is 'unipc'"]),
    (2, ["run", "--sampler=euler"], ["--sampler is euler", "ddim, ddpm and dpm-solver++"]),
    (2, ["run", "-n=many"], ["--count is 'many'", "whole number"]),
    (2, ["run", "-n=0"], ["--count is 0", "at least"]),
    (2, ["run", "-n=2"], ["at least", "2"]),
    (2, ["run", "-o=pairs.jpg"], ["-o is pairs.jpg", "ends in .png"]),
    (2, ["run", "-o=pairs"], ["-o is pairs", "ends in .png"]),
    (2, ["run", "-o=words.pth/pairs.png"], ["cannot be written", "-o"]),
    (2, ["first", "second", "--step=3"], ["--step is for runs", "two sets"]),
    (2, ["first", "second", "--step=best"], ["--step is for runs"]),
    (2, ["first", "second", "-o=pairs.png"], ["--out is for runs"]),
    (2, ["first", "second", "--raw"], ["--raw is for runs"]),
    (2, ["first", "second", "--sample-steps=3"], ["--sample-steps is for runs"]),
    (2, ["first", "second", "-n=2"], ["first: 2 images are too few", "at least 4"]),
    (2, ["few", "second"], ["few: 2 images are too few", "at least 4"]),
    (3, ["empty", "second"], ["empty should hold images", "is empty"]),
    (3, ["first", "nowhere"], ["'nowhere'", "no file or folder"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "arguments", "words"), REFUSED, ids=[" ".join(row[1]) or "nothing" for row in REFUSED]
)
def test_refused_in_words(
    places: Path, capsys: pytest.CaptureFixture[str], code: int, arguments: list[str], words: list[str]
) -> None:
    before = sorted(path.name for path in places.iterdir())
    refused(capsys, code, words, "evaluate", *arguments)
    assert sorted(path.name for path in places.iterdir()) == before, "nothing was written"


@pytest.fixture
def no_inception(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a machine happens to have must not decide a test; the images stay where they are prepared."""
    monkeypatch.setattr("safelight.evaluate.networks.weights.weights_folder", lambda: places / "empty")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.usefixtures("no_inception")
@pytest.mark.parametrize("what", [["run", "-n=4"], ["first", "second"]], ids=["run", "piles"])
def test_missing_weights_are_told_with_the_command_that_gets_them(
    capsys: pytest.CaptureFixture[str], what: list[str]
) -> None:
    command = SOURCES["inception"].command
    assert command == "safelight weights get inception"
    refused(capsys, 2, [command], "evaluate", *what, "--features=inception")


@pytest.mark.usefixtures("no_inception")
def test_missing_weights_are_told_before_anything_is_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safelight.assessment.generate", lambda *_, **__: pytest.fail("samples were drawn in vain"))
    refused(capsys, 2, ["safelight weights get inception"], "evaluate", "run", "--features=inception")


def test_the_least_number_of_images_is_enough(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = ask(capsys, "evaluate", "first", "second", "-n=4", "--components=1")
    assert code == 0, err


def test_images_are_not_prepared_a_second_time(
    train_tiny: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    run = train_tiny("cached", **{"data.cache": str(cache)})
    before = {path.name for path in cache.iterdir()}
    assert ask(capsys, "evaluate", str(run), "--json", *FEW)[0] == 0
    assert {path.name for path in cache.iterdir()} - before <= {"features"}
