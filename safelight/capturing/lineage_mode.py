"""Sees the functions of torch in a captured step: draws, what is made of what, differences, scaled losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from safelight.capturing.trace import Compared, Made, Trace

NORMAL = {"randn", "randn_like", "normal_", "normal"}
OTHER_DRAWS = {"rand", "rand_like", "uniform_", "randint", "randint_like", "randperm", "random_", "multinomial",
               "bernoulli", "bernoulli_", "exponential_", "log_normal_"}  # fmt: skip
LOSSES = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}
DIFFERENCES = {"sub", "sub_", "__sub__", "__rsub__", "__isub__", "rsub", "subtract", "dist"}
SUMS = {"add", "__add__", "__radd__", "add_", "__iadd__"}
SQUARES = {"pow", "__pow__", "square", "abs", "absolute", "norm", "vector_norm", "mul", "__mul__"}
SCALINGS = {"mul", "__mul__", "__rmul__", "mul_", "multiply", "__imul__"}
DIVISIONS = {"div", "__truediv__", "true_divide", "div_", "divide", "__itruediv__"}
REARRANGED = {
    "view", "reshape", "permute", "transpose", "swapaxes", "swapdims", "flatten", "unflatten", "contiguous", "clone",
    "detach", "to", "float", "half", "bfloat16", "double", "type", "type_as", "cuda", "cpu", "unsqueeze", "squeeze",
    "movedim", "moveaxis", "pixel_shuffle", "pixel_unshuffle", "view_as", "reshape_as", "requires_grad_", "cat",
    "concat", "concatenate", "stack", "T", "mT", "data", "unfold", "fold", "pin_memory",
}  # fmt: skip
CLAMPS = {"clamp", "clip", "clamp_min", "clamp_max", "clamp_", "clip_"}
MOST_PLACES = 16_384  # of a list or an array that a tensor is indexed with
GETTERS = {"T", "mT", "data"}
LOOKUPS = {"__getitem__": 1, "gather": 2, "index_select": 2, "take": 1, "take_along_dim": 1, "embedding": 0}
"""Where the places stand among the arguments; the table is the first, or the second of an embedding."""
CREATED = {"zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like", "arange", "linspace"}


class LineageMode(TorchFunctionMode):
    """Looks at arguments and results, and changes none. A fault of ours is handed over, never raised."""

    def __init__(self, trace: Trace, fail: Callable[[Exception], None]) -> None:
        super().__init__()
        self._trace, self._fail = trace, fail
        self.is_open = True
        self.depth = 0  # of functions that are being called: torch has taken the mode off the stack, and puts it back

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.depth += 1
        try:
            return self._look(func, args, kwargs or {})
        finally:
            self.depth -= 1

    def _look(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if self.is_open and isinstance(result, Tensor | tuple | list) and _is_eager():
            try:
                name = getattr(func, "__name__", "")
                if name == "__get__":
                    name = getattr(getattr(func, "__self__", None), "__name__", "")
                    if name not in GETTERS:
                        return result
                self._note(name, args, kwargs, result)
            except Exception as error:
                self._fail(error)
        return result

    def _note(self, name: str, args: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
        trace = self._trace
        if name in LOOKUPS:
            self._note_lookup(name, args, named)
        if isinstance(result, tuple | list):
            parts = [part for part in result if isinstance(part, Tensor) and (part.is_leaf or not part.requires_grad)]
            of = self._given(args, named) if parts else _Given([])  # once, not once for each of a thousand parameters
            for part in parts:
                self._note_made_of(of, name, part)
            return
        if name in NORMAL and (name != "normal" or _is_standard(args, named)):
            self._note_draw(result)
        elif name in OTHER_DRAWS or name in CREATED:
            trace.note(result, is_other_draw=name in OTHER_DRAWS)
        elif name in LOSSES or name in DIFFERENCES or name in SUMS:
            self._note_difference(name, args, named, result)
            self._note_made(name, args, named, result)
        elif name in SQUARES and result.dim() and result.requires_grad:
            if isinstance(args[0], Tensor) and (name not in SCALINGS or (len(args) > 1 and args[1] is args[0])):
                trace.note_square(args[0])
        elif result.dim() == 0 and result.requires_grad:
            self._note_scaled(name, args, result)
        else:
            self._note_made(name, args, named, result)

    def _note_draw(self, result: Tensor) -> None:
        made = self._trace.note(result, is_pure=True, is_draw=True)
        if made is not None:
            made.draws = frozenset([made.order])

    def _note_lookup(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        place, is_embedding = LOOKUPS[name], name == "embedding"
        tables = [*args[int(is_embedding) :][:1], named.get("weight" if is_embedding else "input")]
        table = next((each for each in tables if isinstance(each, Tensor)), None)
        if table is None or not table.dim() or not table.is_floating_point():
            return
        places = args[place] if len(args) > place else named.get("index", named.get("indices", named.get("input")))
        given = next((each for each in (places if isinstance(places, tuple) else (places,)) if _is_many(each)), None)
        if given is not None:
            places = given if isinstance(given, Tensor) else torch.as_tensor(given)
            if not places.is_floating_point() and not places.is_complex() and places.dtype != torch.bool:
                self._trace.note_lookup(table, places)

    def _note_difference(self, name: str, args: tuple[Any, ...], named: dict[str, Any], result: Tensor) -> None:
        given = [value for value in (*args, named.get("input"), named.get("target"), named.get("other"))
                 if isinstance(value, Tensor)]  # fmt: skip
        if len(given) < 2:
            return
        first, second = given[:2]
        if first.requires_grad == second.requires_grad or not (first.dim() and second.dim()):
            return
        pred, target = (first, second) if first.requires_grad else (second, first)
        order = self._trace.next_order()
        if name in SUMS:
            if pred.shape == target.shape:
                self._trace.note_sum(result, Compared(pred, target, order, is_loss=False, is_sum=True))
        elif name in LOSSES or pred.shape == target.shape:
            self._trace.compared.append(Compared(pred, target, order, name in LOSSES))

    def _note_scaled(self, name: str, args: tuple[Any, ...], result: Tensor) -> None:
        """Scalars times or over a number; with the mean of one number as the loss, too."""
        if (name not in SCALINGS and name not in DIVISIONS) or len(args) < 2:
            return
        tensors = [each for each in args[:2] if isinstance(each, Tensor) and each.requires_grad]
        others = [each for each in args[:2] if not (isinstance(each, Tensor) and each.requires_grad)]
        if len(tensors) == 1 and tensors[0].dim() == 0 and isinstance(others[0], int | float):
            number = float(others[0])
            if name in SCALINGS or args[0] is tensors[0]:
                self._trace.note_scaled(result, tensors[0], number if name in SCALINGS else 1 / (number or 1.0))

    def _note_made(self, name: str, args: tuple[Any, ...], named: dict[str, Any], result: Tensor) -> None:
        if result.requires_grad and not result.is_leaf:
            return
        self._note_made_of(self._given(args, named), name, result)

    def _given(self, args: tuple[Any, ...], named: dict[str, Any]) -> _Given:
        enter = self._trace.enter
        return _Given([made for tensor in _tensors((*args, *named.values())) if (made := enter(tensor)) is not None])

    def _note_made_of(self, given: _Given, name: str, result: Tensor) -> None:
        trace, of = self._trace, given.of
        before = trace.find(result)
        if before is not None and not name.endswith("_") and not name.startswith("__i"):
            return  # a function that gave its argument back: `.to(device)` of what is there already
        made = trace.note(
            result,
            draws=given.draws,
            is_pure=bool(given.draws) and given.is_pure(result.numel()),
            is_draw=name in REARRANGED and len(of) == 1 and of[0].is_draw,
            frozen=given.frozen,
        )
        if made is not None and (name in REARRANGED or name in CLAMPS):
            made.is_clamped = name in CLAMPS
            made.parts = tuple(id(each.tensor) for each in of if each.tensor is not result)


class _Given:
    """What a function was given, as far as it can be a part of a step."""

    def __init__(self, of: list[Made]) -> None:
        self.of = of
        self.draws = frozenset[int]().union(*(made.draws for made in of))
        self.frozen = next((each.frozen for each in of if each.frozen is not None), None)

    def is_pure(self, size: int) -> bool:
        return all(each.is_pure for each in self.of if each.tensor.dim() > 1 and each.tensor.numel() * 2 > size)


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from (part for part in value if isinstance(part, Tensor))


def _is_standard(args: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether `torch.normal` draws noise alone: with tensors for mean and deviation it is a sum of noise and of them,
    and noise where the mean is 0 and the deviation one number."""
    mean = args[0] if args else named.get("mean", 0.0)
    std = args[1] if len(args) > 1 else named.get("std", 1.0)
    tensors = [each.detach() for each in (mean, std) if isinstance(each, Tensor)]
    if any(each.is_meta or not each.numel() for each in tensors):
        return False
    has_mean = isinstance(mean, Tensor) and bool(mean.any())
    return not has_mean and not (isinstance(std, Tensor) and bool((std != std.reshape(-1)[0]).any()))


def _is_many(places: Any) -> bool:
    """Whether a tensor is read at more than one place."""
    if isinstance(places, list):
        return 1 < len(places) <= MOST_PLACES and all(type(each) is int for each in places)
    is_array = isinstance(places, np.ndarray) and places.dtype.kind in "iu" and places.size <= MOST_PLACES
    return is_array or isinstance(places, Tensor)


def _is_eager() -> bool:
    """Inside of torch.func and of compiled regions tensors are stand-ins."""
    stack = torch._C._functorch.peek_interpreter_stack()  # pyright: ignore[reportAttributeAccessIssue]
    return stack is None and not torch.compiler.is_compiling()
