"""One optimizer step: accumulate, unscale, judge, clip, update, average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from safelight.config import Config
from safelight.diffusion.inputs import Inputs
from safelight.diffusion.objective import Noised, Objective
from safelight.keys import key
from safelight.model.unet import predict
from safelight.monitors.modules import join_norms
from safelight.monitors.pool import Piece
from safelight.monitors.suite import PartialGradient
from safelight.observing.step_view import StepView
from safelight.probes.inspection import Inspection
from safelight.probes.micro_batch import MicroBatch
from safelight.processes.group import ProcessGroup
from safelight.processes.reduction import Alone, Reduction
from safelight.training.clipping import global_norm
from safelight.training.ema import MAIN
from safelight.training.engine import Engine
from safelight.training.optimizer import learning_rate, prepare_update
from safelight.training.state import State


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
        reduction: Reduction | None = None,
    ) -> None:
        self.config, self.engine, self.objective = config, engine, objective
        self.monitors = state.monitors if watched else None
        self.state, self.network = state, network  # network: the model, or the model compiled or wrapped
        self._parameters = [parameter for _, parameter in state.weights.named]
        self.optimizer_settings = config.optimizer  # healing may lower the learning rate
        self.judge: Judge | None = None
        self.inspection: Inspection | None = None
        self._micro_batches: list[MicroBatch] | None = None  # of the step that is being taken
        self._buffers: list[tuple[Tensor, Tensor]] = []  # and before it
        # Without a reduction it is a step of this process alone.
        self.reduction, self.group = (Alone(), ProcessGroup()) if reduction is None else (reduction, engine.group)

    def take(self, inputs: Sequence[Inputs], step: int, signal: int = 0) -> StepView:
        """`signal`: the number of one that this process received, which all are told of."""
        self._micro_batches = None if self.inspection is None else []
        if self.group.size > 1 or self.config.train.shards is not None:
            self._buffers = [(buffer, buffer.clone()) for buffer in self.state.model.buffers()]
        loss, t, stop_signal, small = self._pass(inputs, step, signal)
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self._parameters]
        state = self.state
        state.scale.unscale(gradients)
        norms = join_norms(torch.stack(torch._foreach_norm(gradients)), state.weights.total)
        norm = torch.linalg.vector_norm(norms)

        # Refused on all processes together, before anything is touched: weights, moments, counters stay clean. All of
        # them have the same gradients and losses here, so they agree without a word.
        refused = 1 - (norm.isfinite() & loss.isfinite().all()).float()
        if self.judge is not None and (again := self.judge(step, inputs, loss, norm, refused)) is not None:
            state.optimizer.zero_grad(set_to_none=True)
            if self.inspection is not None:
                self.inspection.begin_again()
            return self.take(again, step, signal)
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
                t=t,
                norms=norms,
                norm=norm,
                limit=limit,
                scale=scale,
                refused=refused,
                small=small,
                average=state.averages.shadows[MAIN],
            )
        micro_batches_seen, self._micro_batches = self._micro_batches, None
        if self.inspection is not None and micro_batches_seen is not None:
            readings = [*readings, *self.inspection.after_update(micro_batches_seen)]
        return StepView(step, inputs, loss, norms, norm, scale, refused, lr, readings, stop_signal)

    @torch.no_grad()
    def put_back(self) -> None:
        """The buffers of the model, as they were before the step: a pass that did not become an update moved them."""
        for buffer, value in self._buffers:
            buffer.copy_(value)

    def _pass(
        self, inputs: Sequence[Inputs], step: int, signal: int
    ) -> tuple[Tensor, Tensor, Tensor, PartialGradient | None]:
        """Leaves the gradient of the whole batch; returns its losses and timesteps, whoever leaves, and one part."""
        losses: list[Tensor] = []
        small: PartialGradient | None = None
        self.reduction.begin()
        for place, micro in enumerate(inputs):
            if place and self.config.train.shards is not None:
                self.put_back()  # spectral norm moves with every pass, and nobody may see how many a process made
            self.reduction.before(last=place == len(inputs) - 1)
            losses.append(self.accumulate(micro, step))
            if place == 0 and self.monitors is not None:
                small = self._small(micro)
            self.reduction.after()
            self.group.beat()
        loss, t = torch.cat(losses), torch.cat([micro.t for micro in inputs])
        stop_signal = torch.full((1,), float(signal), device=loss.device)
        if self.group.size == 1:
            self.reduction.finish()
            return loss, t, stop_signal, small
        told = self.group.start_all_gather(torch.cat([loss.float(), t.float(), stop_signal]))
        self.reduction.finish()
        rows, share = self.group.wait(told), len(loss)
        return rows[:, :share].flatten(), rows[:, share:-1].flatten().to(t.dtype), rows[:, -1].max(), small

    @torch.no_grad()
    def _small(self, micro: Inputs) -> PartialGradient | None:
        """The gradient after the first of several micro-batches, on the scale of a mean over it."""
        batch, whole = len(micro.x0), self.config.train.batch_size
        if batch == whole or self.state.weights.shard is not None:  # divided, it was added over the processes already
            return None
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        return PartialGradient(global_norm(gradients) * (whole / batch) / self.state.scale.scale, batch, whole)

    def accumulate(self, micro: Inputs, step: int) -> Tensor:
        """Forward and backward of one micro-batch; returns its unweighted losses."""
        noised, answer = self.forward(micro, step)
        plain, weighted = self.objective.loss(answer, noised)
        if self.inspection is not None and self._micro_batches is not None:
            call = self.inspection.take_call()
            told = weighted.detach(), micro.t, micro.x0, micro.noise, noised.x_t, noised.target, answer.detach()
            self._micro_batches.append(MicroBatch(*told, micro.labels, call))
        # The sum over a micro-batch divided by the whole batch: any number of micro-batches adds up the same.
        (weighted.sum() * (self.state.scale.scale / self.config.train.batch_size)).backward()
        return plain.detach()

    def forward(self, micro: Inputs, step: int) -> tuple[Noised, Tensor]:
        noised = self.objective.corrupt(micro.x0, micro.noise, micro.t)
        self.engine.seed(key(self.config.train.seed, "dropout", step, micro.start))
        with self.engine.autocast():
            return noised, predict(self.network, noised.x_t, noised.t, micro.labels)
