"""A run in Python: what it shows of itself, and what can be done with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import safelight
from safelight.errors import UsageError
from safelight.trained import Run, Samples


@pytest.fixture(scope="module")
def run(conditional_run: Path) -> Run:
    return safelight.open(conditional_run)


def test_samples_are_a_tensor_and_a_picture(run: Run) -> None:
    images = run.sample(4, steps=2)
    assert isinstance(images, Samples)
    assert images.shape == (4, 1, 8, 8)
    picture = images._repr_png_()
    assert picture is not None
    assert picture.startswith(b"\x89PNG")
    assert (images * 2)._repr_png_() is not None
    assert images.mean()._repr_png_() is None  # type: ignore[attr-defined]
    assert torch.equal(torch.Tensor(images), run.sample(4, steps=2))


def test_a_label_may_be_a_name(run: Run) -> None:
    by_number, by_name = (run.sample(2, steps=2, label=label) for label in (3, "3"))
    assert torch.equal(by_number, by_name)
    with pytest.raises(
        UsageError, match=r"label is 'faces', but the labels are none and 0 to 9: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    ):
        run.sample(2, label="faces")


def test_labels_of_a_run_without(trained_run: Path) -> None:
    with pytest.raises(UsageError, match="label needs a conditional model"):
        safelight.open(trained_run).sample(2, label=3)


def test_numbers(run: Run) -> None:
    found = run.metrics("loss/mean", "optimizer/lr")
    assert set(found) == {"loss/mean", "optimizer/lr"}
    if isinstance(found, dict):
        assert [len(steps) for steps, _ in found.values()] == [6, 6]
    else:
        assert list(found.index) == list(range(6))
    with pytest.raises(UsageError, match="Did you mean 'loss/mean'"):
        run.metrics("loss/men")


def test_numbers_without_pandas(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    found = run.metrics("loss/mean")
    assert isinstance(found, dict)
    steps, losses = found["loss/mean"]
    assert steps.tolist() == list(range(6))
    assert np.isfinite(losses).all()


def test_it_says_what_it_is(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert [each.code for each in run.findings] == [each.code for each in safelight.diagnose(run.path)]
    assert run.verdict in str(run)
    page = run._repr_html_()
    assert 'src="data:image/png;base64,' in page
    assert "<svg" in page
    assert "step 6" in page
    run.show()  # no notebook: the same in words
    assert run.verdict in capsys.readouterr().out


def test_words_of_a_run_are_no_markup(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "<img src=x onerror=alert(1)>"
    other.symlink_to(run.path)
    assert "<img src=x" not in Run(other, run.config, run.step)._repr_html_()


def test_what_it_writes(run: Run, tmp_path: Path) -> None:
    assert run.report(tmp_path / "page.html").read_bytes().startswith(b"<!doctype html>")
    assert (run.export(tmp_path / "pipeline", label="none") / "model_index.json").is_file()


def test_an_evaluation(run: Run) -> None:
    found = run.evaluate(128, steps=2)
    assert found.quality.sentence
    assert found.examination.distance.value > 0
