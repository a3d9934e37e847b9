"""Host memory that a moment of training is copied into, kept for the next moment."""

from __future__ import annotations

import functools
from operator import attrgetter

import torch
from torch import Tensor

from safelight.checkpoints.snapshot import Groups

_form = attrgetter("shape", "dtype")


class HostCopy:
    """Copies of tensors, in memory of their own. To fill new memory takes longer: every page of it is a fault."""

    def __init__(self) -> None:
        self._sources: list[Tensor] = []
        self._copies: Groups = {}

    @torch.no_grad()
    def copy_from(self, groups: Groups, *, reuse_buffer: bool) -> Groups:
        """The copies. `reuse_buffer`: into the memory of the last ones, which nobody needs any more."""
        values = [value for group in groups.values() for value in group.values()]
        if not reuse_buffer or not self._fits(groups, values):
            empty = functools.partial(torch.empty_like, device="cpu", memory_format=torch.contiguous_format)
            self._copies = {stem: {name: empty(value) for name, value in g.items()} for stem, g in groups.items()}
        self._sources = values
        torch._foreach_copy_([copy for group in self._copies.values() for copy in group.values()], values)
        return self._copies

    def _fits(self, groups: Groups, values: list[Tensor]) -> bool:
        names, kept = ([(stem, [*group]) for stem, group in each.items()] for each in (groups, self._copies))
        return names == kept and all(
            value is source or _form(value) == _form(source)  # most are the very same
            for value, source in zip(values, self._sources, strict=True)
        )
