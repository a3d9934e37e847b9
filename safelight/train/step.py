"""One optimizer step: accumulate, unscale, judge, clip, update, average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from safelight.config import Config
from safelight.diffusion.objective import Noised, Objective
from safelight.keys import key
from safelight.model.unet import predict
from safelight.monitors.monitors import Small
from safelight.monitors.pool import Piece
from safelight.probes.inspection import Inspection
from safelight.probes.specimen import Specimen
from safelight.train.clipping import global_norm
from safelight.train.ema import MAIN
from safelight.train.engine import Engine
from safelight.train.feed import Inputs
from safelight.train.optimizer import learning_rate, prepare_update
from safelight.train.state import State


@dataclass(frozen=True, slots=True)
class StepView:
    """What one step did, still on the device: monitors may look, not touch."""

    step: int  # index of the update, from 0
    inputs: Sequence[Inputs]
    loss: Tensor  # [batch] unweighted, of this process
    norms: Tensor  # [parameters], before clipping
    norm: Tensor  # of all together
    scale: Tensor
    refused: Tensor  # 1 where the update was refused
    lr: float
    readings: Sequence[Piece]  # of the monitors


class Judge(Protocol):
    """Asked once all is known and nothing is touched yet: may have the step made again, with these inputs."""

    def __call__(
        self, step: int, inputs: Sequence[Inputs], loss: Tensor, norm: Tensor, refused: Tensor
    ) -> Sequence[Inputs] | None: ...


class Stepper:
    """Binds the parts that a step needs; owns none of them."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        objective: Objective,
        state: State,
        network: nn.Module,
        *,
        watched: bool = False,
    ) -> None:
        self.config, self.engine, self.objective = config, engine, objective
        self.monitors = state.monitors if watched else None
        self.state, self.network = state, network  # network: the model, or the model compiled or wrapped
        self._parameters = [p for p in state.model.parameters() if p.requires_grad]
        self.optimizer_settings = config.optimizer  # healing may lower the learning rate
        self.judge: Judge | None = None
        self.inspection: Inspection | None = None
        self._specimens: list[Specimen] | None = None  # of the step that is being taken

    def take(self, inputs: Sequence[Inputs], step: int) -> StepView:
        self._specimens = None if self.inspection is None else []
        first = self.accumulate(inputs[0], step)
        small = self._small(inputs) if self.monitors is not None else None
        loss = torch.cat([first, *(self.accumulate(micro, step) for micro in inputs[1:])])
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self._parameters]
        state = self.state
        state.scale.unscale(gradients)
        norms = torch.stack(torch._foreach_norm(gradients))
        norm = torch.linalg.vector_norm(norms)

        # Refused on all processes together, before anything is touched: weights, moments, counters stay clean.
        refused = self.engine.any(1 - (norm.isfinite() & loss.isfinite().all()).float())
        if self.judge is not None and (again := self.judge(step, inputs, loss, norm, refused)) is not None:
            state.optimizer.zero_grad(set_to_none=True)
            return self.take(again, step)
        limit = state.clipper.clip(gradients, norm)
        lr = learning_rate(self.optimizer_settings, step, self.config.train.steps)
        if self.monitors is not None:
            self.monitors.before_update(step, gradients)
        prepare_update(state.optimizer, lr, refused)
        if self.inspection is not None:
            self.inspection.before_update()
        state.optimizer.step()
        state.optimizer.zero_grad(set_to_none=True)
        scale = state.scale.scale
        state.scale.adjust(refused)
        state.averages.update(step + 1)
        readings: Sequence[Piece] = ()
        if self.monitors is not None:
            readings = self.monitors.after_update(
                step,
                loss=loss,
                t=torch.cat([micro.t for micro in inputs]),
                norms=norms,
                norm=norm,
                limit=limit,
                scale=scale,
                refused=refused,
                small=small,
                average=state.averages.shadows[MAIN],
            )
        specimens, self._specimens = self._specimens, None
        if self.inspection is not None and specimens is not None:
            readings = [*readings, *self.inspection.after_update(specimens)]
        return StepView(step, inputs, loss, norms, norm, scale, refused, lr, readings)

    @torch.no_grad()
    def _small(self, inputs: Sequence[Inputs]) -> Small | None:
        """The gradient after the first of several micro-batches, on the scale of a mean over it."""
        if len(inputs) < 2:
            return None
        batch, whole = len(inputs[0].x0), self.config.train.batch_size
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        return Small(global_norm(gradients) * (whole / batch) / self.state.scale.scale, batch, whole)

    def accumulate(self, micro: Inputs, step: int) -> Tensor:
        """Forward and backward of one micro-batch; returns its unweighted losses."""
        noised, answer = self.forward(micro, step)
        plain, weighted = self.objective.loss(answer, noised)
        if self.inspection is not None and self._specimens is not None:
            call = self.inspection.take_call()
            told = weighted.detach(), micro.t, micro.x0, micro.noise, noised.x_t, noised.target, answer.detach()
            self._specimens.append(Specimen(*told, micro.labels, call))
        # The sum over a micro-batch divided by the whole batch: any number of micro-batches adds up the same.
        (weighted.sum() * (self.state.scale.scale / self.config.train.batch_size)).backward()
        return plain.detach()

    def forward(self, micro: Inputs, step: int) -> tuple[Noised, Tensor]:
        noised = self.objective.corrupt(micro.x0, micro.noise, micro.t)
        self.engine.seed(key(self.config.train.seed, "dropout", step, micro.start))
        with self.engine.autocast():
            return noised, predict(self.network, noised.x_t, noised.t, micro.labels)
