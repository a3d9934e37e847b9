"""What a network may predict: one row y = p·x0 + q·ε each, and all that follows from inverting it with x_t."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from safelight.diffusion.process import SIGMA_DATA

Factor = Tensor | float
Row = tuple[Factor, Factor]
"""(p, q). A plain number is one that is the same at every time: 0 and 1 then cost nothing."""
TargetCoefficients = Callable[[Tensor, Tensor], Row]
"""(p, q) from a and s, as in x_t = a·x0 + s·ε."""


def edm_target(sigma_data: float = SIGMA_DATA) -> TargetCoefficients:
    """F = (x0 − c_skip·x_t) / c_out of Karras et al. 2022, of x_t / a with σ = s / a. At a
    deviation of 1 it is −v."""

    def row(a: Tensor, s: Tensor) -> Row:
        length = (s.square() + (a * sigma_data).square()).sqrt()
        return s / (sigma_data * length), -a * sigma_data / length

    return row


TARGETS: dict[str, TargetCoefficients] = {
    "epsilon": lambda a, s: (0.0, 1.0),
    "sample": lambda a, s: (1.0, 0.0),
    "v_prediction": lambda a, s: (-s, a),  # Salimans & Ho 2022
    "flow": lambda a, s: (-1.0, 1.0),
    "reverse_flow": lambda a, s: (1.0, -1.0),
    "score": lambda a, s: (0.0, -1 / s),
    "edm": edm_target(),
}


def make_target(prediction: str, sigma_data: float = SIGMA_DATA) -> TargetCoefficients:
    """The target of a name; EDM's for images of this deviation."""
    return edm_target(sigma_data) if prediction == "edm" else TARGETS[prediction]


def row_of(target: str | TargetCoefficients, a: Tensor, s: Tensor) -> Row:
    return (TARGETS[target] if isinstance(target, str) else target)(a, s)


def target_of(target: str | TargetCoefficients, x0: Tensor, noise: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """What a perfect model would answer at x_t = a·x0 + s·noise."""
    return _mix(*row_of(target, a, s), x0, noise)


def _mix(p: Factor, q: Factor, x0: Tensor, noise: Tensor) -> Tensor:
    """p·x0 + q·noise."""
    if not isinstance(p, Tensor) and p == 0:
        return _times(q, noise)
    if not isinstance(q, Tensor) and q == 0:
        return _times(p, x0)
    return _times(p, x0) + _times(q, noise)


def _times(factor: Factor, values: Tensor) -> Tensor:
    return values if not isinstance(factor, Tensor) and factor == 1 else factor * values


def _is_zero(factor: Factor) -> bool:
    return not isinstance(factor, Tensor) and factor == 0


def _determinant(p: Factor, q: Factor, a: Tensor, s: Tensor) -> Tensor:
    """The determinant of the matrix that makes (x_t, y) of (x0, noise)."""
    return a * q - s * p


def to_x0(target: str | TargetCoefficients, answer: Tensor, x_t: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """The clean image that an answer stands for. For epsilon and score it needs a > 0."""
    p, q = row_of(target, a, s)
    if _is_zero(q):
        return answer if not isinstance(p, Tensor) and p == 1 else answer / p
    return (q * x_t - s * answer) / _determinant(p, q, a, s)


def to_noise(target: str | TargetCoefficients, answer: Tensor, x_t: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """The noise that an answer stands for. For sample it needs s > 0."""
    p, q = row_of(target, a, s)
    if _is_zero(p):
        return answer if not isinstance(q, Tensor) and q == 1 else answer / q
    return (a * answer - p * x_t) / _determinant(p, q, a, s)


def from_x0(target: str | TargetCoefficients, x0: Tensor, x_t: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """The answer that stands for a clean image: the inverse of `to_x0`."""
    return target_of(target, x0, to_noise("sample", x0, x_t, a, s), a, s)


def convert(
    one: str | TargetCoefficients, other: str | TargetCoefficients, answer: Tensor, x_t: Tensor, a: Tensor, s: Tensor
) -> Tensor:
    """The same answer as another target has it."""
    if one == other:
        return answer
    return target_of(other, to_x0(one, answer, x_t, a, s), to_noise(one, answer, x_t, a, s), a, s)


def error_of_x0(target: str | TargetCoefficients, a: Tensor, s: Tensor) -> Tensor:
    """|dx0 / dy| at a given x_t: how large the error of the image is that an error of the answer stands for."""
    return (s / _determinant(*row_of(target, a, s), a, s)).abs()
