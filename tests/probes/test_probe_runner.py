"""All probes on one loop: what breaks is switched off alone, and the loop does not notice any of it."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch
from micro_batches import ALPHAS, SHAPE, Denoiser, batch, network, noised
from torch import Tensor, nn

from safelight.monitors.reading_buffer import PendingReading
from safelight.probes import probe_runner as module
from safelight.probes.forward_pass import ForwardPass, ProcessSpec
from safelight.probes.probe_runner import ProbeRunner
from safelight.probes.probe_schedule import ALLOWANCE
from safelight.probes.runner import averages, copies, start
from safelight.probes.runner.inspected_loop import InspectedLoop

DATA = torch.rand(32, *SHAPE, generator=torch.Generator().manual_seed(0)) * 2 - 1
PROBES = (
    "measure_schedule", "measure_optimizer", "measure_images", "measure_sampler", "measure_network", "measure_update",
    "replay_gradient", "search_line", "measure_labels", "measure_ema",
)  # fmt: skip
NAMES = {"measure_images": "data", "measure_ema": "average", "replay_gradient": "replay", "search_line": "search"}


def draw(model: nn.Module, noise: Tensor) -> Tensor:
    with torch.no_grad():
        return model(noise, torch.full((len(noise),), 999)) * 0 + torch.randn_like(noise)


class Loop:
    """A loop with dropout, labels, an average and a sampler, all of it shown to the probes."""

    def __init__(
        self, *, seen: bool = True, micro_batches: int = 1, kind: type[Denoiser] = Denoiser, **how: Any
    ) -> None:
        torch.manual_seed(0)
        self.model = network(kind, classes=4, dropout=0.2)
        self.average = copy.deepcopy(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.micro_batches, self.number = micro_batches, 0
        self.readings: list[dict[str, float]] = []
        self.said: list[str] = []
        self.probe_runner: ProbeRunner | None = None
        if seen:
            subject = InspectedLoop(self.model, self.optimizer, lambda: list(self.average.parameters()), draw, DATA)
            self.probe_runner = ProbeRunner(subject, ProcessSpec(ALPHAS, "epsilon"), self.said.append, **how)
            self.start = self.probe_runner.at_start()
            self.probe_runner.attach()
            self.optimizer.register_step_pre_hook(lambda *_: self._before())

    def _before(self) -> None:
        if self.probe_runner is not None:
            self.probe_runner.before_update()

    def step(self) -> None:
        micro_batches_seen = []
        for micro in range(self.micro_batches):
            x0, noise, t = batch(16, seed=100 * self.number + micro)
            labels, x_t = t % 3, noised(x0, noise, t)
            answer = self.model(x_t, t, labels)
            loss = (answer - noise).square().mean()
            (loss / self.micro_batches).backward()
            if self.probe_runner is not None:
                call = self.probe_runner.pop_call()
                micro_batches_seen.append(
                    ForwardPass(loss.detach(), t, x0, noise, x_t, noise, answer.detach(), labels, call)
                )
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            for shadow, live in zip(self.average.parameters(), self.model.parameters(), strict=True):
                shadow.lerp_(live, 0.1)
        if self.probe_runner is not None:
            self.readings.append(finished(self.probe_runner.after_update(micro_batches_seen)))
        self.number += 1

    def run(self, steps: int) -> Loop:
        for _ in range(steps):
            self.step()
        return self

    def bytes(self) -> list[bytes]:
        moments = [v for entry in self.optimizer.state.values() for v in entry.values() if isinstance(v, Tensor)]
        tensors = (*self.model.state_dict().values(), *self.average.parameters(), *moments, torch.get_rng_state())
        return [tensor.detach().numpy().tobytes() for tensor in tensors]


def finished(pieces: list[PendingReading]) -> dict[str, float]:
    readings: dict[str, float] = {}
    for piece in pieces:
        readings.update(piece.finish(*(tensor.detach().numpy() for tensor in piece.tensors)))
    return readings


def home_of(probe: str) -> ModuleType:
    """The module that calls it."""
    return next(home for home in (module, start, averages, copies) if hasattr(home, probe))


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """How often each probe was asked."""
    calls: dict[str, int] = dict.fromkeys(PROBES, 0)
    with pytest.MonkeyPatch.context() as patch:
        for name in PROBES:
            true = getattr(home_of(name), name)

            def asked(*given: Any, name: str = name, true: Callable[..., Any] = true, **named: Any) -> Any:
                calls[name] += 1
                return true(*given, **named)

            patch.setattr(home_of(name), name, asked)
        yield calls


class Normed(Denoiser):
    """With buffers that every forward pass in training mode moves."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(self.norm(x.flatten(1)).view_as(x), t, labels)


def test_batch_norm_does_not_notice() -> None:
    seen = Loop(kind=Normed).run(6)
    assert not seen.probe_runner.broken  # type: ignore[union-attr]
    assert seen.bytes() == Loop(kind=Normed, seen=False).run(6).bytes()


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_the_loop_does_not_notice(micro_batches: int) -> None:
    with counted() as calls:
        seen = Loop(micro_batches=micro_batches).run(20)
        with_probes = seen.bytes()
    assert not seen.probe_runner.broken  # type: ignore[union-attr]
    assert not [name for name, count in calls.items() if not count], "the control: every probe was asked"
    assert with_probes == Loop(seen=False, micro_batches=micro_batches).run(20).bytes()


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_that_draws_random_numbers_is_found_out(probe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above: bytes that a probe changes are noticed there."""
    true = getattr(home_of(probe), probe)

    def meddling(*given: Any, **named: Any) -> Any:
        torch.rand(1)
        return true(*given, **named)

    monkeypatch.setattr(home_of(probe), probe, meddling)
    assert Loop().run(6).bytes() != Loop(seen=False).run(6).bytes()


def kept(loop: Loop) -> list[Any]:
    modules = list(loop.model.modules())
    return [
        *(each.detach().clone() for each in (*loop.model.state_dict().values(), *loop.average.parameters())),
        *(None if p.grad is None else p.grad.clone() for p in loop.model.parameters()),
        torch.get_rng_state(),
        [m.training for m in modules],
        [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in modules],
        [p.requires_grad for p in loop.model.parameters()],
    ]


def same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b


@pytest.mark.parametrize("probe", PROBES)
def test_every_probe_leaves_everything_as_it_was(probe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    true, compared = getattr(home_of(probe), probe), list[bool]()
    made: list[Loop] = []

    def watched(*given: Any, **named: Any) -> Any:
        before = kept(made[0])
        readings = true(*given, **named)
        compared.append(all(map(same, before, kept(made[0]))))
        return readings

    monkeypatch.setattr(home_of(probe), probe, watched)
    loop = Loop.__new__(Loop)
    made.append(loop)
    loop.__init__(micro_batches=2)
    loop.model.out.eval()  # a mode that is odd must stay odd
    loop.run(5)
    assert compared
    assert all(compared)


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_that_breaks_is_switched_off_alone(probe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def broken(*_: Any, **__: Any) -> Any:
        asked.append(1)
        raise RuntimeError("oh")

    monkeypatch.setattr(home_of(probe), probe, broken)
    loop = Loop().run(20)
    assert loop.probe_runner is not None
    name = NAMES.get(probe, probe.removeprefix("measure_"))
    assert loop.probe_runner.broken == {name: "RuntimeError: oh"}
    assert len(asked) == 1, "it is not asked again"
    monkeypatch.undo()
    healthy = Loop().run(20)
    for mine, theirs in zip(loop.readings, healthy.readings, strict=True):
        others = {key for key in theirs if not key.startswith(OF_PROBE[probe])}
        assert others <= mine.keys()
    assert loop.bytes()[:-1] == healthy.bytes()[:-1]


OF_PROBE = {
    "measure_schedule": ("check/schedule",), "measure_optimizer": ("check/optimizer",),
    "measure_images": ("check/data",),
    "measure_sampler": ("check/sampler",), "measure_network": ("check/network",), "measure_update": ("check/update",),
    "replay_gradient": ("check/replay",), "search_line": ("check/search",), "measure_labels": ("check/labels",),
    "measure_ema": ("check/average",),
}  # fmt: skip


def test_a_fault_of_the_inspection_itself_ends_the_inspection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measure_magnitudes", lambda _: 1 / 0)
    loop = Loop().run(4)
    assert loop.probe_runner is not None
    assert loop.probe_runner.broken == {"probes": "ZeroDivisionError: division by zero"}
    assert len(loop.said) == 1
    assert "everything else continues" in loop.said[0]
    assert loop.readings == [{}, {}, {}, {}]
    assert loop.bytes() == Loop(seen=False).run(4).bytes()


def test_data_that_cannot_be_read_is_told_and_no_more() -> None:
    class Sick(list[Tensor]):
        def __getitem__(self, place: Any) -> Any:
            raise OSError("no such file")

    model = network()
    probe_runner = ProbeRunner(InspectedLoop(model, data=Sick(DATA)), ProcessSpec(ALPHAS), print)
    assert "check/schedule/last" in probe_runner.at_start()
    assert probe_runner.broken == {"data": "OSError: no such file"}


# When the probes are asked


def when(loop: Loop, signal: str) -> list[int]:
    return [step for step, readings in enumerate(loop.readings) if f"check/{signal}" in readings]


def test_when_the_probes_are_asked() -> None:
    loop = Loop().run(66)
    assert when(loop, "network/finite") == [0]
    assert when(loop, "loss/error") == list(range(66))
    assert when(loop, "forward/error") == [*range(16), 16, 32, 48, 64]
    assert {0, 1, 2, 64} <= set(when(loop, "replay/cosine"))
    assert when(loop, "search/1") == [1, 4, 16, 32], "64 would be beyond the budget of so small a batch"
    assert {1, 2, 3, 17, 33, 49, 65} <= set(when(loop, "average/decay"))
    assert when(loop, "sentinel/moved") == list(range(66))
    assert when(loop, "mode/training") == [0], "readings where it changes"
    assert all(loop.readings[step]["check/average/decay"] == pytest.approx(0.9, abs=1e-3) for step in (1, 2, 3, 17))
    assert all(abs(loop.readings[step]["check/replay/cosine"] - 1) < 1e-4 for step in (0, 1, 2, 64))


@pytest.mark.parametrize("share", [0.0, 0.03, 0.2])
def test_replays_and_searches_stay_within_their_budget(share: float) -> None:
    """Counted by the network itself, which sees every sample that goes through it."""
    loop, steps = Loop(share=share, after_preflight=True), 200
    through = [0.0]

    def count(_: object, inputs: tuple[Tensor, ...]) -> None:
        # A pass with gradients is a forward and a backward one
        through[0] += len(inputs[0]) * (3 if torch.is_grad_enabled() else 1)

    loop.model.register_forward_pre_hook(count)
    for step in range(steps):
        loop.step()
        beside = through[0] / (3 * 16) - (step + 1)
        assert beside <= ALLOWANCE + share * step + 0.01
    assert beside > 10, "the first steps are looked at whatever that costs"


def test_without_a_budget_there_would_be_more() -> None:
    assert len(when(Loop(share=1.0).run(66), "search/1")) > len(when(Loop(share=0.0).run(66), "search/1"))


def test_what_was_replayed_elsewhere_is_recorded_and_not_replayed_again() -> None:
    known = [{"check/replay/cosine": float(step)} for step in range(3)]
    loop = Loop(replayed=known).run(5)
    assert [readings.get("check/replay/cosine") for readings in loop.readings] == [0, 1, 2, None, None]
    assert when(loop, "search/1") == [4]


def test_what_a_preflight_has_looked_at_is_not_looked_at_again() -> None:
    loop = Loop(after_preflight=True).run(2)
    assert when(loop, "network/finite") == []


def test_an_alarm_asks_for_a_replay() -> None:
    loop = Loop().run(30)
    before = when(loop, "replay/cosine")
    assert loop.probe_runner is not None
    loop.probe_runner._schedule.check_for_alarm({"loss/error": 1e6})
    loop.run(3)
    assert len(when(loop, "replay/cosine")) == len(before) + 2
    loop.probe_runner._schedule.check_for_alarm({"loss/error": 1e6})
    loop.run(3)
    assert len(when(loop, "replay/cosine")) == len(before) + 2, "alarms for nothing ask ever more rarely"


def test_mode_and_micro_batches_are_told() -> None:
    loop = Loop(micro_batches=2)
    loop.step()
    loop.model.eval()
    loop.micro_batches = 3
    loop.step()
    loop.step()
    assert [readings.get("check/mode/training") for readings in loop.readings] == [1, 0, None]
    assert [readings.get("check/accumulation/micro_batches") for readings in loop.readings] == [2, 3, None]


def test_an_average_that_moves_between_micro_batches() -> None:
    loop = Loop(micro_batches=2)
    sound = loop.run(3).readings
    assert all(readings.get("check/average/between", 0.0) == 0 for readings in sound)
    sick = Loop(micro_batches=2)
    sick.model.register_forward_hook(lambda *_: [p.data.add_(1e-3) for p in sick.average.parameters()] and None)
    assert any(readings.get("check/average/between") == 1 for readings in sick.run(3).readings)


def test_an_optimizer_that_forgets() -> None:
    healthy, sick = Loop(), Loop()
    for _ in range(4):
        healthy.step()
        sick.step()
        sick.optimizer.state.clear()
    assert [readings["check/optimizer/forgotten"] for readings in healthy.readings[1:]] == [0, 0, 0]
    assert [readings["check/optimizer/forgotten"] for readings in sick.readings[1:]] == [1, 1, 1]


def test_samples_that_are_drawn_meanwhile_are_not_heard() -> None:
    loop = Loop().run(1)
    assert loop.probe_runner is not None
    with torch.no_grad():
        loop.model(*((batch()[0], batch()[2])))
    assert loop.probe_runner.pop_call() is None


# Leaving


def hooks(model: nn.Module) -> int:
    forward = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    grads = sum(len(getattr(p, "_post_accumulate_grad_hooks", None) or ()) for p in model.parameters())
    return forward + grads


def test_hooks_come_off_at_close() -> None:
    loop = Loop().run(2)
    assert loop.probe_runner is not None
    assert hooks(loop.model) > 0
    loop.probe_runner.close()
    assert hooks(loop.model) == 0
    loop.probe_runner.close()
    answer: Tensor = loop.model(*batch()[::2])
    answer.sum().backward()
    assert loop.probe_runner.pop_call() is None


def test_an_inspection_is_not_kept_alive_by_its_hooks() -> None:
    loop = Loop().run(2)
    model, gone = loop.model, weakref.ref(loop.probe_runner)  # type: ignore[arg-type]
    loop.probe_runner.close()  # type: ignore[union-attr]
    del loop
    gc.collect()
    assert gone() is None
    assert isinstance(model, Denoiser)


def test_forget_lets_the_same_steps_come_again() -> None:
    def again(forget: bool) -> bool:
        loop = Loop().run(4)
        assert loop.probe_runner is not None
        if forget:
            loop.probe_runner.forget()
        loop.number = 0
        loop.run(4)
        return any("check/stream/noise_again" in readings for readings in loop.readings[4:])

    assert again(forget=False), "the control"
    assert not again(forget=True)


def test_forget_takes_nothing_over_from_before() -> None:
    loop = Loop().run(2)
    assert loop.probe_runner is not None
    loop.probe_runner.forget()
    loop.step()
    assert "check/replay/carried" not in loop.readings[-1]
    assert "check/average/decay" not in loop.readings[-1]
    assert "check/optimizer/forgotten" not in loop.readings[-1]
    assert loop.bytes() == Loop(seen=False).run(3).bytes()
