"""Any path: the format is recognised, folders are searched, and whatever is wrong ends in words."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from loss_curves import healthy_curve, spiked

import safelight
from safelight.diagnosis import diagnose_log, is_foreign
from safelight.diagnosis.logs.reader import log_at, read_log
from safelight.errors import UsageError

LOSSES = healthy_curve(3, 400, 16)
NAN = np.where(np.arange(400) < 300, LOSSES, np.nan)


def write_csv(path: Path, losses: np.ndarray = LOSSES, name: str = "train_loss") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", name, "lr", "note"])
        writer.writerows([step, loss, 1e-4, "x"] for step, loss in enumerate(losses))
    return path


def write_pandas(path: Path) -> Path:
    """pandas writes NaN as nothing; made as `DataFrame.to_csv` does."""
    path.write_text(",step,loss\n" + "".join(f"{k},{k},{'' if np.isnan(x) else x}\n" for k, x in enumerate(NAN)))
    return path


def write_state(path: Path, losses: np.ndarray = NAN) -> Path:
    """As HF Trainer does: rounded losses, indented, keys sorted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [
        {"epoch": k / 99, "learning_rate": 1e-5, "loss": round(float(x), 4), "step": k + 1}
        for k, x in enumerate(losses)
    ]
    state = {"log_history": [*entries, {"eval_loss": 0.4, "step": 400}], "global_step": 400, "best_metric": None}
    path.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n")
    return path


def write_text(path: Path) -> Path:
    path.write_text("".join(f"INFO step {k} loss {x:.4f} lr 1e-4\n" for k, x in enumerate(NAN)))
    return path


def write_lines(path: Path) -> Path:
    path.write_text("".join(json.dumps({"step": k, "train": {"loss": float(x)}}) + "\n" for k, x in enumerate(NAN)))
    return path


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (lambda folder: write_csv(folder / "metrics.csv", NAN), "CSV"),
        (lambda folder: write_csv(folder / "metrics", NAN), "CSV"),
        (lambda folder: write_pandas(folder / "history.csv"), "CSV"),
        (lambda folder: write_state(folder / "trainer_state.json"), "JSON"),
        (lambda folder: write_text(folder / "slurm-17.out"), "text"),
        (lambda folder: write_text(folder / "nohup"), "text"),
        (lambda folder: write_lines(folder / "log.jsonl"), "JSON lines"),
        (lambda folder: write_lines(folder / "log.txt"), "JSON lines"),
    ],
)
def test_nan_is_found_in_every_format(tmp_path: Path, path: object, kind: str) -> None:
    log = path(tmp_path)  # type: ignore[operator]
    assert log_at(log).kind == kind
    first = 301 if kind == "JSON" else 300  # HF counts from 1
    for place in (log, tmp_path) if log.suffix else (log,):
        assert [(each.code, each.step) for each in safelight.diagnose(place)] == [("LOS001", first)]


def test_as_lightning_leaves_it(tmp_path: Path) -> None:
    """Its CSVLogger with a LearningRateMonitor: rows for rates, losses, epochs, and many empty cells. Written by
    hand, as importing Lightning takes longer than all the rest."""
    path = tmp_path / "lightning_logs" / "version_0" / "metrics.csv"
    path.parent.mkdir(parents=True)
    lines = ["epoch,lr-AdamW,step,train_loss_epoch,train_loss_step,val_loss"]
    for step, loss in enumerate(spiked(LOSSES, 35, 150)):
        lines += [f",0.0001,{step},,,", f"{step // 100},,{step},,{loss},"]
        lines += [f"{step // 100},,{step},,,0.4", f"{step // 100},,{step},0.3,,"] if step % 100 == 99 else []
    path.write_text("\n".join(lines) + "\n")
    found = diagnose_log(tmp_path)
    assert [each.code for each in found.findings] == ["CUR001"]
    assert found.log is not None
    assert found.log.columns == {
        "loss": "train_loss_step", "step": "step", "learning rate": "lr-AdamW", "validation loss": "val_loss"
    }  # fmt: skip
    assert found.log.left_out == ("epoch", "train_loss_epoch")


def test_the_newest_state_of_a_trainer_has_all(tmp_path: Path) -> None:
    write_state(tmp_path / "checkpoint-200" / "trainer_state.json", NAN[:200])
    write_state(tmp_path / "checkpoint-400" / "trainer_state.json")
    assert [each.code for each in safelight.diagnose(tmp_path)] == ["LOS001"]


def test_several_runs_are_listed(tmp_path: Path) -> None:
    for version in (0, 1):
        write_csv(tmp_path / f"version_{version}" / "metrics.csv")
    with pytest.raises(UsageError, match=r"2 logs.*\n.*version_0/metrics.csv\n.*version_1/metrics.csv"):
        safelight.diagnose(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.csv", b"", "is empty"),
        ("x.csv", b"step,accuracy\n1,2\n", "no column that is called a loss"),
        ("x.csv", b"step,loss\n", "no numbers"),
        ("x.csv", b"step,loss\n1,cat\n2,dog\n", "no column that is called a loss"),
        ("x.json", b"{", "is not JSON"),
        ("x.txt", b"hello\nworld\n", "no numbers"),
        ("x.csv", b"\x00\x01\x02", "is not text"),
        ("x.wandb", b"abc", "not a file of W&B"),
    ],
)
def test_whatever_is_wrong_ends_in_words(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        read_log(path)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        read_log(tmp_path / "nothing.csv")
    with pytest.raises(UsageError, match="no log with a loss"):
        read_log(tmp_path)


def test_images_and_runs_are_no_logs(tmp_path: Path) -> None:
    """A folder of images may have a table of its labels."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "metadata.csv").write_text("file_name,label\na.png,1\n")
    (tmp_path / "photos" / "a.png").write_bytes(b"\x89PNG\r\n")
    (tmp_path / "images.zip").write_bytes(b"PK\x03\x04")
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"\x00\x00\x08\x03" + bytes(16))
    write_csv(tmp_path / "run" / "metrics.csv")
    (tmp_path / "run" / "config.yaml").write_text("")
    for name in ("photos", "images.zip", "train-images-idx3-ubyte", "run", "digits", "nothing"):
        assert not is_foreign(tmp_path / name), name
    assert is_foreign(write_csv(tmp_path / "runs" / "x" / "metrics.csv").parent)
    assert is_foreign(tmp_path / "not-there.csv")


def test_the_verdict_says_how_many_rules_could_look(tmp_path: Path) -> None:
    healthy = diagnose_log(write_csv(tmp_path / "a.csv"))
    assert healthy.verdict.startswith(
        f"Nothing was found by the {healthy.coverage.looked} of {healthy.coverage.rules} "
    )
    assert healthy.coverage.looked == 11  # all that need only losses and rates
    short = diagnose_log(write_csv(tmp_path / "b.csv", LOSSES[:20]))
    assert short.coverage.looked == 3  # not finite, a rate of 0, a jump of the rate
    sick = diagnose_log(write_csv(tmp_path / "c.csv", NAN))
    looked = f"{sick.coverage.looked} of {sick.coverage.rules} rules had what they need."
    assert sick.verdict.endswith(f" {looked} The others need the training itself.")
    assert sick.to_json()["log"]["columns"]["loss"] == "train_loss"
