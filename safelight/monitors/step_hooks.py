"""Hooks on the steps of all optimizers, taken off at any moment: also by a hook, while torch goes through them."""

from __future__ import annotations

from torch.utils.hooks import RemovableHandle

_silenced: list[RemovableHandle] = []


def silence(handles: list[RemovableHandle]) -> None:
    """In place: torch iterates over the table itself, and a removal would end the step with an error."""
    for handle in handles:
        table = handle.hooks_dict_ref()
        if table is not None and handle.id in table:
            table[handle.id] = _do_nothing
    _silenced.extend(handles)
    handles.clear()


def remove_silenced() -> None:
    """Only where no step is made just now."""
    while _silenced:
        _silenced.pop().remove()


def _do_nothing(*_: object) -> None: ...
