"""A run that cannot go on stops in words, says where it began, and leaves its state as it was."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from tiny import Quiet, fingerprints, tiny

from safelight import start
from safelight.checkpoints.folder import steps
from safelight.checkpoints.reader import load
from safelight.cli import main
from safelight.diagnosis import diagnose_run
from safelight.errors import Stopped
from safelight.observing.batch_evidence import REFUSED
from safelight.pages.data.overview import overview
from safelight.pages.report.html import collect
from safelight.record.reading import read_events, read_signal
from safelight.training.step import Stepper


class Poisoned(torch.nn.Module):
    """Fine until told otherwise, then infinite inside a named layer."""

    def __init__(self, bad_calls: range) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.bad = torch.nn.Identity()
        self.last = torch.nn.Conv2d(4, 1, 3, padding=1)
        self.steps, self.bad_steps = 0, bad_calls
        self.bad.register_forward_hook(self._spoil)

    def _spoil(self, _: object, __: object, output: torch.Tensor) -> torch.Tensor:
        return output * torch.inf if self.steps in self.bad_steps else output

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.last(self.bad(self.first(x)))


def run(model: Poisoned, folder: Path, **settings: object) -> Quiet:
    def count(step: int) -> None:
        model.steps = step

    terminal = Quiet(on_step=count)
    start.train(tiny(**settings), run=folder, model=model, terminal=terminal)
    return terminal


def test_one_bad_step_is_refused_told_and_recorded(tmp_path: Path) -> None:
    terminal = run(Poisoned(range(3, 4)), tmp_path / "run")
    assert sum("the update was refused" in text for text in terminal.said) == 1
    refused = read_signal(tmp_path / "run" / "record.sqlite", "update/refused")
    assert [step for step, value in refused if value] == [3]
    losses = dict(read_signal(tmp_path / "run" / "record.sqlite", "loss/mean"))
    assert losses[3] != losses[3]  # NaN is kept as it was
    [(step, _, facts)] = read_events(tmp_path / "run" / "record.sqlite", "refused")
    assert step == 3
    assert len(facts["samples"]) == len(facts["timesteps"]) == 8
    assert facts["nonfinite_count"] == len(facts["nonfinite_gradients"]) == 4, (
        "the output is not finite, so all are not"
    )
    assert facts["image_min"] >= -1
    assert facts["image_max"] <= 1
    assert facts["prediction_nonfinite"] == 1
    assert facts["picture"] == "samples/refused_00000004.png", "pictures count the steps that are done"
    assert (tmp_path / "run" / facts["picture"]).is_file()


def test_a_refused_batch_is_seen_in_doctor_and_on_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    run(Poisoned(range(3, 4)), folder)
    [finding] = [each for each in diagnose_run(folder).findings if each.code == "MOD010"]
    assert finding.batch is not None
    assert (finding.batch.step, finding.batch.prediction["nonfinite"]) == (3, 1.0)
    assert main(["doctor", str(folder), "--json"]) == 0
    [told] = [each for each in json.loads(capsys.readouterr().out)["findings"] if each["code"] == "MOD010"]
    assert told["batch"]["samples"] == list(finding.batch.samples)
    assert main(["doctor", str(folder)]) == 0
    printed = capsys.readouterr().out
    for words in finding.batch.words():
        assert words in printed
    page = overview(start.open_run(folder))
    [card] = [each for each in page["findings"] if each["code"] == "MOD010"]
    assert card["batch"]["timesteps"] == list(finding.batch.timesteps)
    assert card["batch"]["images"]["min"] == pytest.approx(finding.batch.images["min"], rel=1e-5)
    assert [each["step"] for each in page["pictures"] if each["kind"] == REFUSED] == [4]
    assert [each["kind"] for each in collect(start.open_run(folder), 10**7)["run"]["pictures"]].count(REFUSED) == 1


def test_healthy_steps_pay_nothing_and_refusals_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []
    true = Stepper.predict_again
    monkeypatch.setattr(Stepper, "predict_again", lambda self, *given: shown.append(given[1]) or true(self, *given))
    torch.manual_seed(0)
    run(Poisoned(range(3, 5)), tmp_path / "shown")
    assert shown == [3, 4]
    monkeypatch.setattr("safelight.training.step_reporter.MOST_PICTURES", 0)
    torch.manual_seed(0)
    run(Poisoned(range(3, 5)), tmp_path / "hidden")
    assert shown == [3, 4]
    assert not list((tmp_path / "hidden" / "samples").glob("refused_*"))
    assert fingerprints(tmp_path / "shown") == fingerprints(tmp_path / "hidden")


def test_only_so_many_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safelight.training.step_reporter.MOST_PICTURES", 2)
    run(Poisoned(range(3, 8)), tmp_path / "run", train__max_refused=100)
    drawn = sorted(path.name for path in (tmp_path / "run" / "samples").glob("refused_*"))
    assert drawn == ["refused_00000004.png", "refused_00000005.png"]
    assert len(read_events(tmp_path / "run" / "record.sqlite", "refused")) == 5


def test_too_many_in_a_row_stop_the_run_where_it_began(tmp_path: Path) -> None:
    with pytest.raises(Stopped) as stopped:
        run(Poisoned(range(3, 100)), tmp_path / "run", train__max_refused=4)
    assert stopped.value.exit_code == 5
    assert re.search(r"step 6: 4 updates in a row .* the output of bad", str(stopped.value))
    loaded = load(tmp_path / "run" / "checkpoints" / f"step_{max(steps(tmp_path / 'run' / 'checkpoints')):08d}")
    assert all(t.isfinite().all() for group in loaded.tensors.values() for t in group.values())
    assert start.open_run(tmp_path / "run").status()["status"] == "stopped"


def test_bad_steps_that_are_not_in_a_row_do_not_stop(tmp_path: Path) -> None:
    class EveryOther(Poisoned):
        def _spoil(self, module: object, inputs: object, output: torch.Tensor) -> torch.Tensor:
            return output * torch.inf if self.steps % 2 else output

    run(EveryOther(range(0)), tmp_path / "run", train__max_refused=2)
    assert start.open_run(tmp_path / "run").status()["status"] == "finished"


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (
            lambda model: torch.nn.init.constant_(model.mid_block.resnets[0].conv1.weight, torch.nan),
            "the weights of mid",
        ),
        (lambda model: model.conv_in.weight.register_hook(lambda g: g * torch.inf), "the gradient of conv_in.weight"),
        (
            lambda m: m.mid_block.resnets[1].norm2.register_forward_hook(lambda _, __, o: o * 1e39),
            "mid_block.resnets.1",
        ),
    ],
    ids=["weights", "gradient", "activation"],
)
def test_autopsy_names_the_place(spoil, where: str) -> None:
    from tiny import parts_of

    from safelight.training.nonfinite import find_first_nonfinite

    parts = parts_of()
    torch.nn.init.normal_(parts.state.model.conv_out.weight)  # a zero output layer would stop every gradient
    spoil(parts.state.model)
    assert where in find_first_nonfinite(parts.stepper, parts.loader.load(0), 0)
    assert all(p.grad is None for p in parts.state.model.parameters())


def test_learning_rate_of_a_million_ends_in_words(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="not finite"):
        start.train(
            tiny(optimizer__lr=1e30, optimizer__warmup=0, clipping__kind="none", train__steps=60, train__max_refused=3),
            run=tmp_path / "run",
            terminal=Quiet(),
        )


class Counting(Poisoned):
    """Counts its own steps: nobody has to look."""

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        answer = super().forward(x, t)
        self.steps += torch.is_grad_enabled()
        return answer


def test_how_often_a_run_is_looked_at_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals are judged at once, and all readings are there, whether a window is one step or the whole run."""
    found = []
    for seconds in (0.0, 1e9):
        monkeypatch.setattr("safelight.monitors.reading_buffer.HOST_SECONDS", seconds)
        folder = tmp_path / str(seconds)
        torch.manual_seed(0)
        with pytest.raises(Stopped) as stopped:
            start.train(tiny(train__max_refused=4), run=folder, model=Counting(range(5, 100)), terminal=Quiet())
        record = folder / "record.sqlite"
        names = ("loss/mean", "update/refused", "gradient/norm", "speed/images")
        found.append([str(stopped.value), *([step for step, _ in read_signal(record, name)] for name in names)])
        found[-1].append([value for _, value in read_signal(record, "update/refused")])
        found[-1].append([(step, facts["nonfinite_count"]) for step, _, facts in read_events(record, "refused")])
    assert found[0] == found[1]
    first = found[0][-1][0][0]
    assert first > 1  # the trial before the run counts two passes
    assert [step for step, _ in found[0][-1]] == list(range(first, first + 4))
