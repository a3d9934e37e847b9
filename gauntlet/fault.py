"""What a fault is: a deed done to a running loop, the cause a doctor should name, and where it can be done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from gauntlet.loop_parts import LoopParts
from gauntlet.options import BASES, Base, Shown

Deed = Callable[..., None]


@dataclass(frozen=True)
class Fault:
    id: str
    deed: Deed
    about: str
    causes: tuple[str, ...]
    """The first is the exact one; the others are right as well, for the reason in `why`."""
    bases: tuple[Base, ...] = BASES
    doses: tuple[Any, ...] = ()
    needs: Mapping[str, Any] = field(default_factory=dict)
    """Options that the healthy twin has too."""
    begin: float | None = None
    """Share of the run after which it begins; unset: from the start."""
    once: bool = False
    """Done for one step only."""
    late: float | None = None
    """Another scenario in which it begins after this share."""
    shown: tuple[Shown, ...] = ()
    """Also with a watch that is told less."""
    undeclared: tuple[str, ...] = ()
    """In continuous time: what is as right where nothing is declared, and so less can be said."""
    why: str = ""
    harms: bool = True
    """False: what it spoils is not the model, but time, memory or an evaluation."""


def fault(
    cause: str,
    *also: str,
    why: str = "",
    bases: tuple[Base, ...] = BASES,
    doses: tuple[Any, ...] = (),
    needs: Mapping[str, Any] | None = None,
    begin: float | None = None,
    once: bool = False,
    late: float | None = None,
    shown: tuple[Shown, ...] = (),
    undeclared: tuple[str, ...] = (),
    harms: bool = True,
) -> Callable[[Deed], Fault]:
    """Declares a deed; its name is the id, its docstring what was done."""

    def declare(deed: Deed) -> Fault:
        name, about = deed.__name__.replace("_", "-"), (deed.__doc__ or "").strip()
        assert not also or why, f"{name} accepts several causes: say why"
        return Fault(
            id=name,
            deed=deed,
            about=about,
            causes=(cause, *also),
            bases=bases,
            doses=doses,
            needs=needs or {},
            begin=begin,
            once=once,
            late=late,
            shown=shown,
            undeclared=undeclared,
            why=why,
            harms=harms,
        )

    return declare


def graft(module: nn.Module, change: Callable[..., Any], *, before: bool = False) -> None:
    """Changes what goes into or comes out of a module, in its class: copies of the module have it too."""
    kind: Any = type(module)

    class Grafted(kind):
        def forward(self, *given: Any, **named: Any) -> Any:
            if before:
                return super().forward(*change(*given), **named)
            return change(super().forward(*given, **named))

    Grafted.__name__ = kind.__name__
    module.__class__ = Grafted


def apply(fault: Fault, loop_parts: LoopParts, dose: Any) -> None:
    if dose is None:
        fault.deed(loop_parts)
    else:
        fault.deed(loop_parts, dose)
