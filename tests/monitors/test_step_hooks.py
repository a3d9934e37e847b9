"""Hooks on steps that are taken off by a hook."""

from __future__ import annotations

import torch
from torch.optim import optimizer as optimizers

from safelight.monitors.step_hooks import remove_silenced, silence


def test_a_hook_takes_off_itself_and_others_while_torch_goes_through_them() -> None:
    before = len(optimizers._global_optimizer_post_hooks)
    seen: list[str] = []

    def first(*_: object) -> None:
        seen.append("first")
        silence([handles[0], handles[1]])

    register = optimizers.register_optimizer_step_post_hook
    handles = [register(first), register(lambda *_: seen.append("second")), register(lambda *_: seen.append("third"))]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
    optimizer.step()  # a removal in place of silence() fails here: the table changed size during iteration
    optimizer.step()
    assert seen == ["first", "third", "third"]
    handles[2].remove()
    remove_silenced()
    assert len(optimizers._global_optimizer_post_hooks) == before
