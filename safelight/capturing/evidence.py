"""What captured micro-batches have in common, in sentences: recognised with its proof, or not known."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from safelight.capturing.explanation import ExplainedMicroBatch
from safelight.capturing.living import frozen_whole_of, held_numbers, held_of, whole_of
from safelight.diffusion.recognition import TARGETS, FittedCoefficients, RecognisedProcess, recognise
from safelight.words import with_article

MAX_KEPT_SAMPLES = 4096  # samples that are kept as numbers
INPUT_TOLERANCE = 0.05  # of the size of the input of a network
UNROOTED = "a table that the loop reads at whole timesteps, as in DDPM, but with a square root missing"


class CaptureEvidence:
    """Numbers of the samples seen so far, and nothing of their tensors."""

    def __init__(self) -> None:
        self._columns: list[np.ndarray] = []
        self._samples = self.explained = 0
        self.left, self.other_noise, self.perturbed = 0.0, 0, 0
        self.sigma_data: float | None = None
        self.is_scaled = True
        self.lowest, self.highest, self.shape = np.inf, -np.inf, ()
        self.frozen, self.has_labels, self.half = "", False, ""
        self.has_target = self.lacks_root = False
        self.is_drawn = True
        """Whether all noise was seen to be a normal draw of torch."""

    def add(self, found: ExplainedMicroBatch) -> None:
        """On the host; only of captured steps."""
        passed = found.passed
        self.has_target |= passed.target is not None
        if passed.call is not None and passed.call.half is not None:
            self.half = str(passed.call.half).removeprefix("torch.")
        if found.mixing is None or passed.x0 is None or not np.isfinite(found.mixing.a).all():
            return  # a batch with a broken image proves less than the others
        self.explained += 1
        self.other_noise += found.has_other_noise
        self.is_drawn &= bool(found.mixing.noise.draws)
        self.perturbed += found.is_perturbed
        self.sigma_data, self.is_scaled = found.sigma_data, not (found.inner_error or 0.0) > INPUT_TOLERANCE
        self.lacks_root |= found.lacks_root
        self.left = max(self.left, found.mixing.left)
        if found.frozen is not None and found.network is not None and not self.frozen:
            self.frozen = type(frozen_whole_of(found.frozen, found.network)).__name__
        low, high = (float(edge) for edge in passed.x0.float().aminmax())
        self.lowest, self.highest = min(self.lowest, low), max(self.highest, high)
        self.shape, self.has_labels = tuple(passed.x0.shape[1:]), passed.labels is not None
        if self._samples < MAX_KEPT_SAMPLES:
            self._columns.append(_columns(found))
            self._samples += self._columns[-1].shape[1]

    def recognised(self) -> RecognisedProcess:
        if not self._columns:
            return RecognisedProcess()
        a, s, t, p, q = np.concatenate(self._columns, axis=1)
        has_time, has_row = bool(np.isfinite(t).all()), bool(np.isfinite(p).all())
        return recognise(
            FittedCoefficients(a, s, t if has_time else None, p if has_row else None, q if has_row else None)
        )

    def sentences(self) -> list[str]:
        """Sentences about the process, the target, the time and the space."""
        if not self.explained:
            return [
                "The process is not known: no input of the network was found to be a mixture of one tensor of the step "
                "and a normal draw."
            ]
        found = self.recognised()
        seen = "one micro-batch" if self.explained == 1 else f"{self.explained} micro-batches"
        proof = f"x_t = a·x0 + s·noise leaves {self.left:.0e} over, in {seen}"
        words = found.words()
        if self.lacks_root:
            words = (
                UNROOTED if found.target is None else f"{UNROOTED}, target {TARGETS.get(found.target, found.target)}"
            )
        lines = [f"{words[0].upper()}{words[1:]} ({proof})."]
        if not self.is_drawn:
            lines.append("The noise is not always a normal draw of torch in the same step.")
        if self.sigma_data is not None:
            shown = "c_in·x_t" if self.is_scaled else "x_t without c_in"
            lines.append(
                f"Inside, the network is shown {shown}: EDM's preconditioning, sigma_data {self.sigma_data:.3g}."
            )
        if self.perturbed:
            lines.append("x_t holds the noise of the target and another draw on top (input perturbation).")
        elif self.other_noise:
            lines.append("The target holds other noise than x_t.")
        elif not self.has_target:
            lines.append("The target is not known: no loss was seen that compares the output with it.")
        space = f"Latents of {self.frozen}" if self.frozen else "x0"
        lines.append(
            f"{space}: {' × '.join(map(str, self.shape))}, from {self.lowest:.3g} to {self.highest:.3g}"
            f"{', with labels' if self.has_labels else ''}."
        )
        return lines


def _columns(found: ExplainedMicroBatch) -> np.ndarray:
    """[5, samples]: a, s, t, p, q; NaN where not known."""
    mixing = found.mixing
    assert mixing is not None
    size = len(mixing.a)
    unknown = np.full(size, np.nan)
    t = unknown
    if found.shown_t is not None and found.shown_t.numel() >= size:
        t = found.shown_t.detach().reshape(-1)[:size].to("cpu").double().numpy()
    p, q = (unknown, unknown) if found.row is None else (each[:size] for each in found.row)
    return np.stack([mixing.a, mixing.s, t, p, q])


def describe_network(network: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    wanted = {id(p): p.numel() for p in network.parameters()}
    held, whole = held_numbers(optimizer, wanted), sum(wanted.values())
    trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
    holds_any = held_of(network, optimizer)[0] > 0
    part = f"{_short(held)} of {_short(whole)}" if holds_any else f"none of its {_short(trained)} trained"
    kind = type(network).__name__.removeprefix("FSDP")  # FSDP2 gives each module a class of its own
    words = f"{kind}: {part} parameters in {type(optimizer).__name__}."
    if (outer := whole_of(network, optimizer)) is not None:
        size = sum(p.numel() for p in outer.parameters())
        words += (
            f" It is one part of {with_article(type(outer).__name__)} of {_short(size)}: no other part was looked at."
        )
    return words


def describe_loop(accumulates: int | None, clips: tuple[str, float] | None, half: str, ema: Any) -> list[str]:
    """`ema`: the search for it."""
    lines = []
    if ema is not None and ema.still:
        lines.append(f"A copy of the network that is named as an EMA has not moved in {ema.still} updates.")
    elif ema is None or not ema.holder:
        lines.append("No EMA was seen.")
    else:
        held = f"EMA in {with_article(ema.holder)}"
        lines.append(
            f"{held}, decay {ema.decay:.4g} when last seen."
            if ema.decay is not None
            else f"{held}, decay not known yet."
        )
    if accumulates is not None and accumulates > 1:
        lines.append(f"Accumulates {accumulates} micro-batches.")
    lines.append("No clipping was seen." if clips is None else f"Clips the {clips[0]} of gradients at {clips[1]:g}.")
    if half:
        lines.append(f"Autocast to {half}.")
    return lines


def _short(number: int) -> str:
    for size, unit in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)
