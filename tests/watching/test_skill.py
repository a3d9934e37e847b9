"""Skill in loops that are not ours: as exact as in our trainer, and nothing of the loop is touched."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import safelight
from safelight.capturing.capture import Capture
from safelight.config.tree import Prediction
from safelight.diffusion.targets import from_x0, target_of
from safelight.record.reading import read_events, read_signal
from safelight.yardstick.denoisers import AT_ONCE
from safelight.yardstick.exact import denoise_exactly
from safelight.yardstick.linear import fit_linear

TIMESTEPS = 50
ALPHAS = torch.cos(torch.linspace(0.1, 1.5, TIMESTEPS, dtype=torch.float64)).square()


def blobs(count: int) -> Tensor:
    """A random brightness in a random quarter of 4 px, over a grey that all share, and a little noise."""
    draw = np.random.default_rng(0)
    pixels = draw.normal(-0.3, 0.05, (count, 1, 4, 4))
    for each, (row, column) in zip(pixels, draw.integers(0, 2, (count, 2)), strict=True):
        each[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] += draw.uniform(0.3, 1.2)
    return torch.from_numpy(pixels).float()


DATA = blobs(256)
LINEAR = fit_linear(DATA.split(AT_ONCE))
DENOISERS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "isotropic": LINEAR.isotropic().denoise,
    "linear": LINEAR.denoise,
    "exact": lambda x, a, s: denoise_exactly(x, a, s, [DATA]),
}


class Known(nn.Module):
    """Answers as a denoiser does whose skill is known, times a weight of 1."""

    def __init__(self, denoiser: str, prediction: Prediction = "epsilon") -> None:
        super().__init__()
        self.weight, self._denoise, self._prediction = nn.Parameter(torch.ones(1)), DENOISERS[denoiser], prediction

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        a, s = (each[t].view(-1, 1, 1, 1) for each in (ALPHAS.sqrt(), (1 - ALPHAS).sqrt()))
        x0 = self._denoise(x.detach(), a.flatten(), s.flatten())
        return self.weight * from_x0(self._prediction, x0, x, a, s).float()


class Labelled(Known):
    """Cannot be called without a label for each sample."""

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None, more: Any = None) -> Tensor:  # type: ignore[override]
        assert label is not None
        return super().forward(x, t) * (1 + 0 * label.view(-1, 1, 1, 1))


@pytest.fixture(autouse=True)
def as_often_as_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a look costs on a busy machine."""
    monkeypatch.setattr("safelight.probes.probe_schedule.LOOK_SHARE", float("inf"))


def loop(
    folder: Path,
    model: nn.Module,
    *,
    given: tuple[str, ...] = ("t", "x0", "noise", "x_t", "target", "pred"),
    call: Callable[[nn.Module, Tensor, Tensor], Any] = lambda model, x, t: model(x, t),
    shown: Callable[[Tensor], Tensor] = lambda x0: x0,
    prediction: Prediction = "epsilon",
    declared: Prediction | None = None,
    at: Callable[[int], None] = lambda step: None,
    steps: int = 70,
    batch_size: int = 16,
    say_all: list[str] | None = None,
    **how: Any,
) -> list[str]:
    """A loop whose optimizer never changes a weight; what was said of the watch itself. `shown`: images as the loop has
    them."""
    said: list[str] = [] if say_all is None else say_all
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    drawn = torch.Generator().manual_seed(1)
    kind = declared or prediction
    with safelight.watch(
        model, optimizer, run=folder, schedule=ALPHAS, prediction=kind, say=said.append, **how
    ) as watch:
        for step in range(steps):
            at(step)
            x0 = shown(DATA[torch.randint(0, len(DATA), (batch_size,), generator=drawn)])
            t = torch.randint(0, TIMESTEPS, (batch_size,), generator=drawn)
            noise = torch.randn(x0.shape, generator=drawn)
            a, s = (each[t].float().view(-1, *[1] * (x0.dim() - 1)) for each in (ALPHAS.sqrt(), (1 - ALPHAS).sqrt()))
            x_t, target = a * x0 + s * noise, target_of(prediction, x0, noise, a, s)
            pred = call(model, x_t, t)
            loss = (pred - target).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            known = {"t": t, "x0": x0, "noise": noise, "x_t": x_t, "target": target, "pred": pred}
            watch.step(loss, **{name: known[name] for name in given})
    return [words for words in said if words.startswith("Safelight's")]


def readings(folder: Path, name: str) -> list[tuple[int, float]]:
    return read_signal(folder / "record.sqlite", name)


def reasons(folder: Path) -> list[str]:
    return [facts["reason"] for _, _, facts in read_events(folder / "record.sqlite", "no_skill")]


# What is measured


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize(("denoiser", "expected"), [("isotropic", 0.0), ("linear", 1.0), ("exact", None)])
def test_skill_is_that_of_the_denoiser(
    tmp_path: Path, denoiser: str, expected: float | None, prediction: Prediction
) -> None:
    assert loop(tmp_path / "run", Known(denoiser, prediction), prediction=prediction, steps=20, data=DATA) == []
    found = readings(tmp_path / "run", "skill/raw")
    assert [step for step, _ in found] == [15, 19], "after 16 updates, and at the end"
    if expected is None:
        assert found[0][1] > 1.05
        assert readings(tmp_path / "run", "skill/floor")[0][1] == pytest.approx(1, abs=1e-3)
    else:
        assert [skill for _, skill in found] == pytest.approx([expected] * 2, abs=2e-3)
    assert readings(tmp_path / "run", "skill/level/07")
    assert not readings(tmp_path / "run", "skill/ema")
    assert reasons(tmp_path / "run") == []


def test_a_loop_that_passes_x0_needs_no_dataset(tmp_path: Path) -> None:
    """The filter is fitted to the images that were seen: some are there more than once."""
    assert loop(tmp_path / "run", Known("linear"), steps=130) == []
    found = readings(tmp_path / "run", "skill/raw")
    assert [step for step, _ in found] == [63, 127, 129]
    assert found[0][1] == pytest.approx(1, abs=0.05)
    assert found[0][1] == found[1][1], "always the same samples"


def test_an_average_is_measured_beside_the_weights(tmp_path: Path) -> None:
    model, average = Known("linear"), Known("linear")
    nn.init.constant_(model.weight, 0.5)
    loop(tmp_path / "run", model, steps=20, data=DATA, ema=average)
    assert readings(tmp_path / "run", "skill/ema")[0][1] == pytest.approx(1, abs=2e-3)
    assert readings(tmp_path / "run", "skill/raw")[0][1] < 0.9
    levels = [readings(tmp_path / "run", f"skill/level/{level:02d}") for level in range(16)]
    assert [each[0][1] for each in levels if each] == pytest.approx([1.0] * sum(map(bool, levels)), abs=0.01)


def test_an_average_that_cannot_be_matched_is_left_out(tmp_path: Path) -> None:
    loop(tmp_path / "run", Known("linear"), steps=20, data=DATA, ema=nn.Linear(3, 3))
    assert readings(tmp_path / "run", "skill/raw")
    assert not readings(tmp_path / "run", "skill/ema")


def test_a_model_that_was_ruined_is_not_called_healthy(tmp_path: Path) -> None:
    """Sick: the weight leaves 1 after 20 steps. Healthy: it stays. Near miss: it moves by a hundredth."""
    words = {}
    for name, weight in (("sick", 4.0), ("healthy", 1.0), ("near miss", 1.01)):
        model = Known("exact")

        def spoil(step: int, model: Known = model, weight: float = weight) -> None:
            if step == 20:
                nn.init.constant_(model.weight, weight)

        loop(tmp_path / name, model, data=DATA, steps=40, at=spoil)
        words[name] = safelight.diagnosis.diagnose_run(tmp_path / name).skill
    assert words["sick"].is_ruined
    assert not words["healthy"].is_ruined
    assert not words["near miss"].is_ruined
    assert "worse than a filter" in words["sick"].words()
    assert "better than the best linear filter" in words["healthy"].words()


def test_what_training_gains_is_seen(tmp_path: Path) -> None:
    """A network that is not made by us, from nothing."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    with safelight.watch(model, optimizer, run=tmp_path / "run", schedule=ALPHAS, prediction="sample", data=DATA) as w:
        for _ in range(300):
            x0, t = DATA[torch.randint(0, len(DATA), (32,))], torch.randint(0, TIMESTEPS, (32,))
            kept = ALPHAS[t].float().view(-1, 1, 1, 1)
            loss = (model(kept.sqrt() * x0 + (1 - kept).sqrt() * torch.randn_like(x0), t) - x0).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            w.step(loss)
    found = [skill for _, skill in readings(tmp_path / "run", "skill/raw")]
    assert len(found) == 6
    assert found[0] < 0 < found[-1]


# When it cannot be measured


def labelled(model: nn.Module, x: Tensor, t: Tensor) -> Tensor:
    return model(x, t, label=torch.ones(len(x)))


class InTenths(Known):
    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return super().forward(x, (t * 10).round().long())


class OnlyInTraining(Known):
    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        if not self.training:
            raise RuntimeError("not in evaluation\nmore")
        return super().forward(x, t)


class Twice(Known):
    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return torch.cat([super().forward(x, t)] * 2, 1)


SEEN = ("t", "noise", "x_t", "target", "pred")  # all but x0
OFF: dict[str, tuple[nn.Module, dict[str, Any], str]] = {
    "labels": (Labelled("linear"), {"call": labelled, "given": SEEN}, "more for each sample (`label`): pass x0"),
    "tensors in a dict": (
        Labelled("linear"),
        {"call": lambda model, x, t: model(x, t, torch.ones(len(x)), {"text": x})},
        "tensors inside of input 4",
    ),
    "no timesteps of the schedule": (
        InTenths("linear"),
        {"call": lambda model, x, t: model(x, t / 10), "given": ()},
        "not those of the schedule",
    ),
    "other timesteps": (
        Known("linear"),
        {"call": lambda model, x, t: model(x, (t + 1).clamp(max=TIMESTEPS - 1))},
        "other timesteps than t",
    ),
    "another target": (Known("linear"), {"declared": "v_prediction"}, "the target is not v_prediction"),
    "another answer": (
        Known("linear"),
        {"call": lambda model, x, t: 2 * model(x, t)},
        "the target is not epsilon",  # in the terms of what the network returns: half of it
    ),
    "twice the channels": (
        Twice("linear"),
        {"call": lambda model, x, t: model(x, t)[:, :1], "given": ()},
        "returns (2, 4, 4) for (1, 4, 4)",
    ),
    "other shape": (Known("linear"), {"data": DATA.repeat(1, 3, 2, 2), "given": SEEN}, "has the shape (3, 8, 8)"),
    "bytes": (Known("linear"), {"data": (DATA * 100).byte(), "given": SEEN}, "data has uint8 numbers"),
    "another range": (Known("linear"), {"data": (DATA + 1) / 2, "given": ()}, "another scale than what the model is"),
    "an error": (OnlyInTraining("linear"), {}, "(RuntimeError: not in evaluation)"),
    "few images": (Known("linear"), {"data": DATA[:16], "given": ()}, "fewer than 32 images"),
}


@pytest.mark.parametrize("case", OFF)
def test_what_cannot_be_measured_is_reported_once(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Capture, "start", lambda _: False)  # what is not passed is not seen either
    model, how, reason = OFF[case]
    [words] = loop(tmp_path / "run", model, **{"data": DATA} | how)
    assert words.startswith("Safelight's watch: Skill is not measured: ")
    [recorded] = reasons(tmp_path / "run")
    assert reason in recorded
    assert recorded in words
    assert not readings(tmp_path / "run", "skill/raw")
    assert len(readings(tmp_path / "run", "loss/mean")) == 70, "the watch goes on"


@pytest.mark.parametrize(
    ("model", "how"),
    [
        (Labelled("linear"), {"call": labelled}),
        (Known("linear"), {"data": DATA.repeat(1, 3, 2, 2)}),
        (Known("linear"), {"data": (DATA * 100).byte()}),
        (Known("linear"), {"data": DATA * 0.5 + 0.5}),
        (Known("linear"), {"data": None}),
    ],
    ids=["labels", "other shape", "bytes", "another range", "no data"],
)
def test_images_of_the_steps_stand_in_for_a_dataset_that_is_something_else(
    tmp_path: Path, model: nn.Module, how: dict[str, Any]
) -> None:
    assert loop(tmp_path / "run", model, **{"data": DATA} | how) == []
    assert readings(tmp_path / "run", "skill/raw")[0] == (63, pytest.approx(1, abs=0.05))
    has_floor = bool(readings(tmp_path / "run", "skill/floor") and readings(tmp_path / "run", "skill/exact"))
    assert has_floor != isinstance(model, Labelled), "a denoiser that knows no labels is no floor"


@pytest.mark.parametrize(
    "how",
    [
        {"call": lambda model, x, t: model(x, t=t)},
        {"call": lambda model, x, t: model(x, t.float()), "given": ("x0", "noise", "x_t", "target", "pred")},
        {"given": ()},
        {"given": ("x0",)},
        {"batch_size": 5},
    ],
    ids=["by name", "as floats", "nothing passed", "only x0", "an odd batch"],
)
def test_ways_of_calling_that_are_as_good(tmp_path: Path, how: dict[str, Any]) -> None:
    class Rounding(Known):
        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            return super().forward(x, t.long())

    assert loop(tmp_path / "run", Rounding("linear"), data=DATA, **how) == []
    assert readings(tmp_path / "run", "skill/raw")[0] == (15, pytest.approx(1, abs=2e-3))


@pytest.mark.parametrize("missing", [{"schedule": None}, {"prediction": None}])
def test_nothing_is_said_of_a_loop_that_declares_too_little(tmp_path: Path, missing: dict[str, None]) -> None:
    said: list[str] = []
    how: dict[str, Any] = {"schedule": ALPHAS, "prediction": "epsilon"} | missing
    model = Known("linear")
    with safelight.watch(model, run=tmp_path / "run", data=DATA, say=said.append, **how) as watch:
        for _ in range(20):
            watch.step((model(DATA[:4], torch.arange(4)) - DATA[:4]).square().mean())
    assert [words for words in said if "kill" in words] == []
    assert reasons(tmp_path / "run") == []


def test_a_compiled_model_is_called_without_its_compiler(tmp_path: Path) -> None:
    compiled: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(len(inputs))
        return graph.forward

    torch.manual_seed(0)
    model = torch.compile(Net(), backend=backend)
    assert loop(tmp_path / "run", model, data=DATA, steps=20) == []  # type: ignore[arg-type]
    assert len(readings(tmp_path / "run", "skill/raw")) == 2
    assert len(compiled) == 1


def test_a_loop_that_crashed_is_not_measured_again(tmp_path: Path) -> None:
    def fail(step: int) -> None:
        if step == 19:
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        loop(tmp_path / "run", Known("linear"), data=DATA, at=fail)
    assert [step for step, _ in readings(tmp_path / "run", "skill/raw")] == [15]


# What is left as it was


class Net(nn.Module):
    """With a layer in evaluation mode, a frozen one, buffers that move, and randomness of all three kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.body, self.out = nn.Embedding(TIMESTEPS, 32), nn.Linear(16, 32), nn.Linear(32, 16)
        self.drop, self.norm, self.frozen = nn.Dropout(0.1), nn.BatchNorm1d(32), nn.Linear(16, 16).requires_grad_(False)
        self.norm.eval()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        hidden = functional.silu(self.body(x.flatten(1)) + self.time(t))
        return (self.out(self.drop(self.norm(hidden))) + 0 * self.frozen(x.flatten(1))).view_as(x)


class Restless(Net):
    """Draws in evaluation too, and counts its calls in a buffer."""

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        self.calls += 1
        chance = random.random() + float(np.random.random()) + float(torch.rand(()))
        return super().forward(x, t) * (1 + 1e-3 * chance)


class Augmented(torch.utils.data.Dataset[Tensor]):
    """Draws from all three, as transforms do."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, place: int) -> Tensor:
        chance = random.random() + float(np.random.random()) + float(torch.rand(()))
        return DATA[place] * (1 + 0.01 * chance)


def everything(folder: Path | None, *, half: bool = False, **how: Any) -> dict[str, Any]:
    """All that a loop could notice, at its end. It shows each step inside of the autocast of the next one."""
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(0)
    model, average = Restless(), Restless()
    average.load_state_dict(model.state_dict())
    optimizer, watch = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3), None
    if folder is not None:
        given: dict[str, Any] = {"schedule": ALPHAS, "prediction": "epsilon", "say": lambda _: None} | how
        watch = safelight.watch(model, optimizer, run=folder, ema=average, **given)
    step: dict[str, Tensor] = {}
    for _ in range(66):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            if watch is not None and step:
                watch.step(**step)
            x0, t = DATA[torch.randint(0, len(DATA), (16,))], torch.randint(0, TIMESTEPS, (16,))
            noise, kept = torch.randn_like(x0), ALPHAS[t].float().view(-1, 1, 1, 1)
            x_t = kept.sqrt() * x0 + (1 - kept).sqrt() * noise
            pred = model(x_t, t)
            loss = (pred.float() - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step = {"loss": loss, "t": t, "x0": x0, "noise": noise, "x_t": x_t, "target": noise, "pred": pred}
    found = {
        "tensors": [each.numpy().tobytes() for each in (*model.state_dict().values(), *average.state_dict().values())],
        "gradients": [None if p.grad is None else p.grad.numpy().tobytes() for p in model.parameters()],
        "trained": [p.requires_grad for p in model.parameters()],
    }
    if watch is not None:
        watch.close()
    drawn = random.random(), np.random.random(), float(torch.rand(()))
    return found | {"modes": [m.training for m in model.modules()], "drawn": drawn}


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("data", [DATA, Augmented(), None], ids=["tensor", "dataset", "x0"])
def test_with_and_without_skill_a_loop_is_the_same(tmp_path: Path, data: Any, half: bool) -> None:
    assert everything(tmp_path / "run", data=data, half=half) == everything(None, half=half)
    assert len(readings(tmp_path / "run", "skill/raw")) >= 2
    for name in ("check/mode/training", "check/accumulation/micro_batches"):  # our own passes are none of the loop
        assert {number for _, number in readings(tmp_path / "run", name)} == {1.0}


def test_the_model_is_measured_in_evaluation_mode(tmp_path: Path) -> None:
    class Dropped(Known):
        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            return super().forward(x, t) * (0.5 if self.training else 1)

    loop(tmp_path / "run", Dropped("linear"), data=DATA, steps=20)
    assert readings(tmp_path / "run", "skill/raw")[0][1] == pytest.approx(1, abs=2e-3)


def test_our_passes_are_no_calls_of_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr("safelight.watching.loop.Watch._on_call", lambda self: calls.append(self.updates))
    loop(tmp_path / "run", Known("linear"), data=DATA, steps=40)
    assert len(readings(tmp_path / "run", "skill/raw")) == 3
    assert calls == list(range(40))


@contextlib.contextmanager
def nothing(*_: object) -> Iterator[None]:
    yield


@contextlib.contextmanager
def only_torch(*_: object) -> Iterator[None]:
    with torch.random.fork_rng():
        yield


@contextlib.contextmanager
def evaluation_for_good(model: nn.Module) -> Iterator[None]:
    model.eval()
    yield


@pytest.mark.parametrize(
    ("shields", "broken", "what"),
    [
        (["skill", "forward_pass"], nothing, "drawn"),
        (["skill", "forward_pass"], only_torch, "drawn"),
        (["dataset"], nothing, "drawn"),
        (["dataset"], only_torch, "drawn"),
        (["skill"], evaluation_for_good, "modes"),
    ],
    ids=["no random state", "only that of torch", "none for a dataset", "only that of torch for a dataset", "modes"],
)
def test_a_shield_that_is_gone_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shields: list[str], broken: Any, what: str
) -> None:
    """The controls of the test above."""
    name = "evaluation_mode" if what == "modes" else "kept_random_state"
    for module in shields:
        monkeypatch.setattr(f"safelight.probes.{module}.{name}", broken)
    assert everything(tmp_path / "run", data=Augmented())[what] != everything(None)[what]


# --- held-out images ------------------------------------------------------------------------------------------------

OTHERS = blobs(512)[256:]  # of the same kind
HELD_OUT_READINGS = ("probe/raw", "probe/held_raw", "probe/held_gap", "skill/raw", "skill/held")


@pytest.mark.parametrize(("held_out", "is_worse"), [(OTHERS, False), (OTHERS.roll(1, -1), True)])
def test_held_out_images_show_what_is_learnt_of_the_training_images_alone(
    tmp_path: Path, held_out: Tensor, is_worse: bool
) -> None:
    assert loop(tmp_path / "run", Known("exact"), data=DATA, held_out=held_out) == []
    newest = {name: readings(tmp_path / "run", name)[-1][1] for name in HELD_OUT_READINGS}
    assert (newest["probe/held_gap"] > 4) is is_worse
    assert (newest["probe/held_raw"] > 1.2 * newest["probe/raw"]) is is_worse
    assert (newest["skill/held"] < newest["skill/raw"] - 0.1) is is_worse


@pytest.mark.parametrize(
    ("held_out", "reason"),
    [
        (OTHERS / 2 + 0.5, "its mean is 0.44 and its deviation 0.18; those of the training images are"),
        (OTHERS[:, :, :2], "an image of held_out has the shape (1, 2, 4), the model is called with (1, 4, 4)"),
        (7, "it is no tensor, array or Dataset of images"),
    ],
)
def test_held_out_images_that_do_not_fit_are_named_and_cost_nothing(tmp_path: Path, held_out: Any, reason: str) -> None:
    said: list[str] = []
    loop(tmp_path / "run", Known("linear"), data=DATA, held_out=held_out, say_all=said)
    assert any(f"held_out is not used: {reason}" in words for words in said), said
    assert readings(tmp_path / "run", "probe/held_raw") == []
    assert readings(tmp_path / "run", "skill/raw")
