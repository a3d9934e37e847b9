"""safelight data, and training on a pile with broken files in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import TINY, ask, make_images
from oddities import make_broken, make_good
from PIL import Image

from safelight.record.reading import read_events


@pytest.fixture(scope="module")
def pile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str], set[str]]:
    top = tmp_path_factory.mktemp("pile")
    good = make_good(top)
    return top, good, make_broken(top)


def test_the_page_tells_facts_and_names_what_was_left_out(
    pile: tuple[Path, set[str], set[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    top, good, broken = pile
    sheet = tmp_path / "sheets" / "sheet.png"
    code, out, _ = ask(capsys, "data", str(top), "--image-size", "16", "--set=data.max_bad=0.2", "-o", str(sheet))
    assert code == 0
    assert f"{len(good)} of 16 x 16 px, colour" in out
    assert all(name in out for name in broken)
    assert "Few: " in out
    with Image.open(sheet) as image:
        assert image.width > 400
        assert image.height > 400


def test_json_holds_everything(pile: tuple[Path, set[str], set[str]], capsys: pytest.CaptureFixture[str]) -> None:
    top, good, broken = pile
    code, out, _ = ask(capsys, "data", str(top), "--image-size=16", "--json", "--set=data.held_out=0.2",
                       "--set=data.max_bad=0.2")  # fmt: skip
    found = json.loads(out)
    assert code == 0
    assert found["images"] == len(good)
    assert {name for name, _ in found["rejected"]} == broken
    assert 0 < found["held_out"] < len(good)
    assert sum(found["classes"].values()) == len(good)


def test_a_pile_too_bad_to_train_on_is_shown_and_refused(
    pile: tuple[Path, set[str], set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = ask(capsys, "data", str(pile[0]), "--image-size=16", "--set=data.max_bad=0.01")
    assert code == 3
    assert "left out" in out
    assert "training would refuse" in out
    assert "data.max_bad allows 1.0%" in err


def test_training_leaves_the_broken_files_out_by_name(
    pile: tuple[Path, set[str], set[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    top, good, broken = pile
    run = tmp_path / "run"
    settings = ["--image-size=16", "--set=data.max_bad=0.2", "--set=data.flip=true", "--set=data.random_crop=0.25",
                "--set=data.jitter=0.1", "--set=data.held_out=0.2", "--set=data.balance=true"]  # fmt: skip
    code, _, err = ask(capsys, "train", str(top), f"--run={run}", *TINY, *settings)
    assert code == 0, err
    assert all(name in err for name in broken)
    told = json.loads((run / "data.json").read_text())
    assert {name for name, _ in told["rejected"]} == broken
    assert told["images"] == len(good)
    assert json.loads((run / "run.json").read_text())["data"]["rejected"] == len(broken)
    [(step, _, facts)] = read_events(run / "record.sqlite", "data")
    assert (step, facts) == (0, told)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["data", "nowhere"], "no file or folder"),
        (["data", "shapes:many"], "shapes"),
        (["data", "digits", "--set=data.background=pink"], "#rrggbb"),
        (["data", "digits", "--set=data.random_crop=3"], "at most 1"),
        (["data", "digits", "-o", "/dev/null/x.png"], "cannot be written"),
        (["train", "PILE", "--set=data.balance=true"], "no labels"),
        (["train", "PILE", "--set=data.held_out=0.0000001"], "no image to hold out"),
    ],
)
def test_what_cannot_work_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    Image.effect_noise((20, 20), 50).save(tmp_path / "a.png")
    arguments = [str(tmp_path) if word == "PILE" else word for word in arguments]
    more = [*TINY, "--image-size=16", f"--run={tmp_path / 'run'}"] if arguments[0] == "train" else []
    code, _, err = ask(capsys, *arguments, *more)
    assert code in (2, 3)
    assert words in err
    assert "Traceback" not in err


def test_a_set_smaller_than_the_batch_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        Image.effect_noise((20, 20), 50).save(tmp_path / f"{number}.png")
    code, _, err = ask(capsys, "train", str(tmp_path), f"--run={tmp_path / 'run'}", *TINY, "--image-size=16")
    assert code == 0
    assert "3 images" in err
    assert "each image comes more than once in every batch" in err


HOSTILE = "x\x1b]52;c;aGk=\x07\x9b2J\nError: forged\u202e"


def test_names_of_files_and_classes_reach_no_terminal_raw(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ESC, OSC 52, C1, newlines and bidi controls; also where all images are refused."""
    (here / "set").mkdir()
    for name in ("one", HOSTILE):
        make_images(here / "set" / name, 3)
    (here / "set" / "one" / f"{HOSTILE}.png").write_bytes(b"no picture")
    for arguments in (["--set=data.max_bad=1"], ["--set=data.max_bad=0"]):
        _, out, err = ask(capsys, "data", "set", "--image-size", "8", *arguments)
        assert "\\x1b]52" in out
        assert not any(sign in out + err for sign in ("\x1b", "\x07", "\x9b", "\u202e", "\nError: forged"))
