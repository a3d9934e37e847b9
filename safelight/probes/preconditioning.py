"""Loops whose prediction is made of the network's output and its input, as EDM's D = c_skip·x_t + c_out·F."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from safelight.diffusion.process import per_sample
from safelight.probes.forward_pass import ForwardPass
from safelight.probes.mixtures import fit

ALIKE_DIFFERENCE = 1e-3  # of the length of a prediction: bf16 rounds to 0.004, which is an output all the same
MAX_UNEXPLAINED = 1e-4  # what input and output may leave of a prediction


class Preconditioning:
    """Puts target and prediction in the terms of the network: what its own output should have been. Whether a loop
    needs it is seen once, at a step whose output is not 0."""

    def __init__(self) -> None:
        self._is_needed: bool | None = None

    @property
    def is_needed(self) -> bool:
        return bool(self._is_needed)

    @torch.no_grad()
    def undo(self, passed: ForwardPass) -> ForwardPass:
        call, pred, target = passed.call, passed.pred, passed.target
        output, x_t = (None, None) if call is None else (call.output, call.x)
        if self._is_needed is False or pred is None or target is None:
            return passed
        if output is None or x_t is None:
            return replace(passed, pred=None, target=None) if self._is_needed else passed
        if pred.data_ptr() == output.data_ptr() or not pred.shape == output.shape == x_t.shape == target.shape:
            return passed
        if pred.device.type == "mps" or pred.dim() < 2:
            return passed
        made, seen, out = pred.detach().double(), x_t.detach().double(), output.detach().double()
        skip, scale, left = fit(made, seen, out)
        if self._is_needed is None and not self._decide(made, out, left):
            # Of an output of 0 nobody can tell: what it should have been is not known.
            return passed if self._is_needed is False else replace(passed, pred=None, target=None)
        asked = (target.detach().double() - per_sample(skip, pred) * seen) / per_sample(scale, pred)
        return replace(passed, pred=output, target=asked.to(target.dtype))

    def _decide(self, pred: Tensor, output: Tensor, left: Tensor) -> bool:
        lengths = pred.flatten(1).norm(dim=1)
        if float((pred - output).flatten(1).norm(dim=1).max()) <= ALIKE_DIFFERENCE * float(lengths.max()):
            self._is_needed = False
        elif float(output.abs().max()) > 0:
            self._is_needed = bool((left.norm(dim=1) <= MAX_UNEXPLAINED * lengths).all())
        return bool(self._is_needed)
