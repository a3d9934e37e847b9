"""Loops that know nothing of Safelight: what is seen of them, and that nothing of them is another."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.overrides import _get_current_function_mode_stack

import safelight
from safelight.capturing import capture
from safelight.capturing.capture import Capture, is_captured
from safelight.capturing.evidence import UNROOTED, CaptureEvidence, describe_loop
from safelight.capturing.explanation import ExplainedMicroBatch
from safelight.monitors.step_hooks import remove_silenced
from tests.capturing import loops

DDPM, FLOW = "a variance-preserving process (DDPM)", "flow matching"


class Followed:
    """Keeps numbers of what it is told, and no tensors."""

    def __init__(self, **given: Any) -> None:
        self.said: list[str] = []
        self.evidence = CaptureEvidence()
        self.network: type | None = None
        self.last_alpha: float | None = None  # entry of the table that was found
        self.losses: list[float] = []
        self.updates = 0
        self.per_update: list[int] = []
        self._since = 0
        self.capture = Capture(self, self.said.append, **given)

    def found(self, network: nn.Module, optimizer: torch.optim.Optimizer, first: ExplainedMicroBatch | None) -> None:
        self.network = type(network)
        self.last_alpha = None if first is None or first.alphas is None else float(first.alphas[-1])

    def last_call(self) -> None: ...

    def micro_batch(self, explained: ExplainedMicroBatch) -> None:
        self.losses.append(float(explained.passed.loss))
        self._since += 1
        if explained.passed.call is not None:
            self.evidence.add(explained)

    def updated(self) -> None:
        self.updates += 1
        self.per_update.append(self._since)
        self._since = 0

    @property
    def words(self) -> str:
        return self.evidence.recognised().words()

    @property
    def of_loop(self) -> list[str]:
        seen = self.capture
        return describe_loop(seen.accumulates, seen.clips, self.evidence.half, seen.ema)


def follow(loop: Callable[[], Any]) -> Followed:
    torch.manual_seed(0)
    followed = Followed()
    followed.capture.start()
    try:
        loop()
    finally:
        followed.capture.finish()
    return followed


def of(loss: Callable[..., Tensor], make: Callable[[], nn.Module] = loops.Net) -> Callable[[], nn.Module]:
    return lambda: loops.train(loss, make())


LOOPS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "ddpm epsilon": (of(loops.ddpm_epsilon), f"{DDPM}, target noise, whole timesteps"),
    "ddpm v": (of(loops.ddpm_v), f"{DDPM}, target v = a·noise − s·x0, whole timesteps"),
    "ddpm v, made before the call": (of(loops.ddpm_v_before), f"{DDPM}, target v = a·noise − s·x0, whole timesteps"),
    "ddpm x0": (of(loops.ddpm_x0), f"{DDPM}, target x0, whole timesteps"),
    "flow to noise": (of(loops.flow_to_noise), f"{FLOW}, target noise − x0, t = 1000·s"),
    "flow to data": (of(loops.flow_to_data), f"{FLOW}, target x0 − noise, t = (1 − s)"),
    "edm in the network": (
        of(loops.edm_outside, loops.Preconditioned), "a variance-exploding process, target x0, t = sigma"),
    "edm in the loop": (of(loops.edm_inside), "EDM with sigma_data 0.5, target EDM's F, t = log(sigma) / 4"),
    "exploding": (of(loops.exploding), "a variance-exploding process, target −noise / s, t = sigma"),
    "fresh noise": (of(loops.fresh_noise), f"{DDPM}, target that is not known, whole timesteps"),
    "weighted": (of(loops.weighted), f"{DDPM}, target noise, whole timesteps"),
    "masked": (of(loops.masked), f"{DDPM}, target noise, whole timesteps"),
    "labelled": (of(loops.labelled, lambda: loops.Net(labelled=True)), f"{DDPM}, target noise, whole timesteps"),
    "half": (of(loops.half), f"{DDPM}, target noise, whole timesteps"),
    "noise of numpy": (of(loops.with_noise(loops.of_numpy)), f"{DDPM}, target noise, whole timesteps"),
    "one draw before the loop": (
        of(loops.with_noise(lambda _: loops.ONE_DRAW)), f"{DDPM}, target noise, whole timesteps"),
    "uniform noise": (of(loops.with_noise(torch.rand_like)), f"{DDPM}, target noise, whole timesteps"),
    "clamped x_t": (of(loops.with_noise(torch.randn_like, limit=1.0)), f"{DDPM}, target noise, whole timesteps"),
    "offset noise": (of(loops.offset_noise), f"{DDPM}, target noise, whole timesteps"),
    "one draw for all": (of(loops.shared_noise(2, 4, 4)), f"{DDPM}, target noise, whole timesteps"),
    "one draw for all, with a dimension": (
        of(loops.shared_noise(1, 2, 4, 4)), f"{DDPM}, target noise, whole timesteps"),
    "perturbed input": (of(loops.perturbed_input), f"{DDPM}, target that is not known, whole timesteps"),
    "one time": (of(loops.one_time), f"{DDPM}, target noise, whole timesteps"),
    "inpainting": (of(loops.inpainting, lambda: loops.Net(5)), f"{DDPM}, target noise, whole timesteps"),
    "packed": (of(loops.packed, lambda: loops.Sequence(8)), f"{FLOW}, target noise − x0, t = s"),
    "wrapper": (loops.wrapped, f"{DDPM}, target noise, whole timesteps"),
    "noise as augmentation": (lambda: loops.wrapped(blur=0.01), f"{DDPM}, target noise, whole timesteps"),
    "indexed tensor": (loops.indexed, f"{DDPM}, target noise, whole timesteps"),
    "accumulated": (loops.accumulated, f"{DDPM}, target noise, whole timesteps"),
    "scaled": (loops.scaled, f"{DDPM}, target noise, whole timesteps"),
    "closure": (loops.closed, f"{DDPM}, target noise, whole timesteps"),
    "latents": (loops.latent, f"{DDPM}, target noise, whole timesteps"),
    "no diffusion": (
        of(loops.classifier), "a process that is not known, target that is not known, a time that is not known"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_recognised_and_not_changed(name: str) -> None:
    loop, words = LOOPS[name]
    torch.manual_seed(0)
    expected = weights(loop())
    trained: list[nn.Module] = []
    followed = follow(lambda: trained.append(loop()))
    assert (followed.words, followed.said) == (words, [])
    assert weights(trained[0]) == expected
    assert followed.updates == loops.STEPS
    assert followed.evidence.left < 1e-6
    assert _get_current_function_mode_stack() == []
    assert not modules._global_forward_hooks
    assert not modules._global_forward_pre_hooks
    assert not modules._has_any_global_hook()  # what a compiled module warns of


def weights(model: nn.Module) -> list[bytes]:
    return [*(p.detach().numpy().tobytes() for p in model.parameters()), torch.get_rng_state().numpy().tobytes()]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("fresh noise", "The target holds other noise than x_t."),
        ("perturbed input", "x_t holds the noise of the target and another draw on top (input perturbation)."),
        ("edm in the network", "Inside, the network is shown c_in·x_t: EDM's preconditioning, sigma_data 0.5."),
        ("labelled", "x0: 2 × 4 × 4, from -0.999 to 0.999, with labels."),
        ("no diffusion", "The process is not known: no input of the network was found to be a mixture of one tensor of "
         "the step and a normal draw."),
    ],
)  # fmt: skip
def test_what_is_particular_is_stated(name: str, line: str) -> None:
    assert line in follow(LOOPS[name][0]).evidence.sentences()


def test_a_preconditioned_network_that_forgets_c_in_is_known() -> None:
    found = follow(of(loops.edm_outside, lambda: loops.Preconditioned(scaled=False))).evidence.sentences()
    assert found[1] == "Inside, the network is shown x_t without c_in: EDM's preconditioning, sigma_data 0.5."


DRAWS: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("numbers", lambda x0: torch.normal(0.0, 1.0, x0.shape)),
    ("numbers by name", lambda x0: torch.normal(mean=0.0, std=1.0, size=x0.shape)),
    ("tensors", lambda x0: torch.normal(torch.zeros_like(x0), torch.ones_like(x0))),
    ("tensors by name", lambda x0: torch.normal(mean=torch.zeros_like(x0), std=torch.ones_like(x0))),
    ("a mean alone", lambda x0: torch.normal(torch.zeros_like(x0))),
    ("a mean, with a generator", lambda x0: torch.normal(torch.zeros_like(x0), 1.0, generator=torch.Generator())),
    ("a deviation", lambda x0: torch.normal(0.0, torch.ones_like(x0))),
    ("into a tensor", loops.drawn_into),
    ("a distribution", lambda x0: torch.distributions.Normal(0.0, 1.0).sample(x0.shape)),
    ("normal_", lambda x0: torch.empty_like(x0).normal_()),
]


@pytest.mark.parametrize("draw", [row[1] for row in DRAWS], ids=[row[0] for row in DRAWS])
def test_noise_is_known_however_it_is_drawn(draw: Callable[[Tensor], Tensor]) -> None:
    assert follow(of(loops.drawn(draw))).words == f"{FLOW}, target noise − x0, t = s"


NOT_NOISE: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("another mean", lambda x0: torch.normal(x0.roll(1, 0), 1.0)),
    ("another mean by name", lambda x0: torch.normal(mean=x0.roll(1, 0), std=1.0)),
    ("other deviations", lambda x0: torch.normal(torch.zeros_like(x0), x0.abs() + 0.1)),
]


@pytest.mark.parametrize("draw", [row[1] for row in NOT_NOISE], ids=[row[0] for row in NOT_NOISE])
def test_a_draw_around_something_is_not_noise(draw: Callable[[Tensor], Tensor]) -> None:
    assert "not known" in follow(of(loops.drawn(draw))).words


def test_samples_of_two_numbers_are_known_to_what_captures_them(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with safelight.captured(run=tmp_path / "run", say=lambda _: None) as found:
        for _ in range(4):
            x0, t = torch.rand(64, 2), torch.rand(64, 1)
            noise = torch.randn_like(x0)
            loss = (model(torch.cat([(1 - t) * x0 + t * noise, t], -1)) - (noise - x0)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert found.is_known
    assert "Flow matching, target noise − x0" in found.recognised()[1]


READINGS: list[tuple[str, Callable[[Tensor, Tensor], Tensor], float | None]] = [
    ("indexed", lambda table, t: table[t], 1e-3),
    ("indexed by a tuple", lambda table, t: table[t, None], 1e-3),
    ("indexed by a list", lambda table, t: table[t.tolist()], 1e-3),
    ("indexed by numpy", lambda table, t: table[t.numpy()], 1e-3),
    ("gathered", lambda table, t: table.gather(-1, t), 1e-3),
    ("selected", lambda table, t: table.index_select(0, t), 1e-3),
    ("selected by name", lambda table, t: torch.index_select(input=table, dim=0, index=t), 1e-3),
    ("taken", torch.take, 1e-3),
    ("in an embedding", lambda table, t: torch.nn.functional.embedding(t, table[:, None]), 1e-3),
    ("viewed", lambda table, t: table.view(-1, 1, 1, 1)[t], 1e-3),
    ("roots", lambda table, t: table.sqrt()[t].square(), 1e-3),
    ("where it was not seen", lambda table, t: torch.from_numpy(table.numpy()[t.numpy()]), None),
]


@pytest.mark.parametrize(("read", "last"), [row[1:] for row in READINGS], ids=[row[0] for row in READINGS])
def test_the_table_is_the_one_that_was_read(read: Callable[[Tensor, Tensor], Tensor], last: float | None) -> None:
    """Not the one before it was clamped, which agrees at all times that were drawn; where both may be it, neither."""
    found = follow(of(loops.clamped(read))).last_alpha
    assert found == (None if last is None else pytest.approx(last, rel=1e-3))


def test_a_table_that_is_one_minus_another_does_not_hide_a_little_signal() -> None:
    assert follow(of(loops.rounded)).last_alpha == pytest.approx(1e-10, rel=1e-3)


@pytest.mark.parametrize("powers", [(1, 1), (0.5, 1), (1, 0.5)])
def test_a_table_is_known_where_a_square_root_is_missing(powers: tuple[float, float]) -> None:
    found = follow(of(loops.unrooted(*powers)))
    assert found.last_alpha == pytest.approx(float(loops.ALPHAS[-1]), rel=1e-3)
    assert found.evidence.sentences()[0].startswith(f"{UNROOTED[0].upper()}{UNROOTED[1:]}")


def test_a_flow_may_read_its_noise_levels_of_a_table() -> None:
    found = follow(of(loops.flow_by_table))
    assert found.last_alpha is None
    assert found.words.startswith(f"{FLOW}, target noise − x0")


def test_latents_of_a_frozen_network_are_named() -> None:
    assert follow(loops.latent).evidence.sentences()[1].startswith("Latents of Encoder: 4 × 4 × 4")


def test_an_autoencoder_is_named_of_which_layers_alone_are_called() -> None:
    assert follow(loops.latent_of_autoencoder).evidence.sentences()[1].startswith("Latents of Autoencoder: 4 × 4 × 4")


def test_a_wrapper_is_not_taken_for_the_network() -> None:
    assert follow(loops.wrapped).network is loops.Net


def test_the_loss_is_that_before_it_is_divided_or_scaled() -> None:
    accumulated, scaled = follow(loops.accumulated), follow(loops.scaled)
    assert accumulated.per_update == [3] * loops.STEPS
    assert all(0.8 < loss < 1.5 for loss in accumulated.losses)
    assert all(0.8 < loss < 1.5 for loss in scaled.losses)
    assert accumulated.of_loop[1:] == ["Accumulates 3 micro-batches.", "Clips the norm of gradients at 1.5."]
    assert "Autocast to bfloat16." in follow(of(loops.half)).of_loop


def test_an_ema_is_found_among_many_networks_that_are_none() -> None:
    others = [loops.Net() for _ in range(20)]
    found = follow(functools.partial(loops.averaged, "diffusers"))
    assert found.of_loop[0] == "EMA in a list, decay 0.9 when last seen."
    assert len(others) == 20


@pytest.mark.parametrize(("kind", "holder"), [("module", "a Net"), ("diffusers", "a list"), ("dict", "a dict")])
def test_an_ema_is_found_by_its_moves(kind: str, holder: str) -> None:
    found = follow(functools.partial(loops.averaged, kind))
    assert found.of_loop[0] == f"EMA in {holder}, decay 0.9 when last seen."


@pytest.mark.parametrize(("since", "still"), [(None, 19), (16, 0), (0, 0)])
def test_an_ema_that_stands_still_is_known_by_its_name(since: int | None, still: int) -> None:
    found = follow(lambda: loops.still_ema(since))
    assert found.of_loop[0].startswith(
        f"A copy of the network that is named as an EMA has not moved in {still} updates." if still else "EMA in a Net"
    )


@pytest.mark.parametrize("sampled", [False, True])
def test_an_ema_that_is_called_as_a_sampler_does_is_noted(sampled: bool, tmp_path: Path) -> None:
    with safelight.captured(run=tmp_path / "run", say=lambda _: None) as found:
        model = loops.still_ema(sampled=sampled)
    diagnosis = found.diagnosis()
    assert diagnosis is not None
    assert [(each.code, each.severity) for each in diagnosis.findings] == [("EMA002", "warning" if sampled else "info")]
    assert not model._forward_pre_hooks


def test_between_captured_steps_only_the_loss_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "is_captured", lambda updates: updates in (0, 3))
    followed, stacks = Followed(), list[int]()
    followed.capture.start()

    def loss(model: nn.Module, x0: Tensor, y: Tensor) -> Tensor:
        stacks.append(len(_get_current_function_mode_stack()) + len(modules._global_forward_hooks))
        return loops.ddpm_epsilon(model, x0, y)

    loops.train(loss, steps=6)
    followed.capture.finish()
    assert stacks == [2, 0, 0, 2, 0, 0]
    assert (followed.updates, len(followed.losses), followed.evidence.explained) == (6, 6, 2)


def test_nothing_of_a_step_outlives_it() -> None:
    held: list[weakref.ref[Tensor]] = []

    def loss(model: nn.Module, x0: Tensor, _: Tensor) -> Tensor:
        assert not [each for each in held if each() is not None]
        x_t, t, noise, _ = loops.noised(x0)
        held[:] = [weakref.ref(each) for each in (x0, noise, x_t, t)]
        return torch.nn.functional.mse_loss(model(x_t, t), noise)

    gc.disable()
    try:
        follow(of(loss))
    finally:
        gc.enable()
    assert len(held) == 4


def test_a_fault_of_ours_ends_the_capture_and_not_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("of ours")

    monkeypatch.setattr(capture, "explain", broken)
    followed = follow(of(loops.ddpm_epsilon))
    assert followed.said == ["Safelight's capture stopped (RuntimeError: of ours); your training continues without it."]


def test_another_thread_trains_as_it_likes() -> None:
    torch.manual_seed(0)
    followed = Followed()
    followed.capture.start()
    thread = threading.Thread(target=of(loops.ddpm_epsilon))
    thread.start()
    thread.join()
    followed.capture.finish()
    assert (followed.updates, followed.said) == (0, [])


def test_what_was_wrapped_is_put_back() -> None:
    before = torch.autograd.backward, torch.compile, torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.scale
    follow(of(loops.ddpm_epsilon))
    after = torch.autograd.backward, torch.compile, torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.scale
    assert after == before


def test_a_script_that_compiles_is_left_alone() -> None:
    def loop() -> nn.Module:
        torch.compile(lambda x: x)
        assert _get_current_function_mode_stack() == []
        return loops.train(loops.ddpm_epsilon)

    assert follow(loop).evidence.explained == 0


def test_an_error_of_the_script_is_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        follow(lambda: loops.train(lambda *_: torch.zeros(1) / (1 // 0)))
    assert _get_current_function_mode_stack() == []


def test_the_first_steps_are_captured_and_few_later() -> None:
    captured = [updates for updates in range(4096) if is_captured(updates)]
    assert captured[:64] == list(range(64))
    assert len(captured) < 64 + 2 * 30 + 2 * 12 + 30


def test_a_fault_inside_an_update_does_not_reach_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch goes through its own table of hooks: one that is removed meanwhile would end the step with an error."""
    from torch.optim import optimizer as optimizers

    before = len(optimizers._global_optimizer_post_hooks)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    followed = Followed()
    watched = followed.capture
    assert watched.start()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(watched, "_after_step", lambda *given: watched._guarded(fail, *given))
    handle = watched._step_hooks[1]
    table = handle.hooks_dict_ref()
    assert table is not None
    table[handle.id] = watched._after_step
    other = optimizers.register_optimizer_step_post_hook(lambda *_: None)  # after the last one torch stops anyway
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    other.remove()
    assert "capture stopped (ZeroDivisionError" in followed.said[0]
    remove_silenced()
    assert len(optimizers._global_optimizer_post_hooks) == before
