"""What a healthy run may be like: the choices of a base, and what each recipe changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

Base = Literal["mixture", "plain", "own", "flow", "edm"]
Shown = Literal["all", "loss", "loss and t"]
BASES: tuple[Base, ...] = ("mixture", "plain", "own")
FOREIGN: tuple[Base, ...] = ("mixture", "plain")
CONTINUOUS: tuple[Base, ...] = ("flow", "edm")
ALL: tuple[Base, ...] = (*BASES, *CONTINUOUS)


@dataclass(frozen=True, kw_only=True)
class Options:
    """A training recipe. Defaults are those of `mixture`."""

    steps: int = 240
    batch: int = 128
    count: int = 4096
    """Images in the training set."""
    timesteps: int = 1000
    schedule: Literal["cosine", "linear"] = "cosine"
    prediction: Literal["epsilon", "sample", "v_prediction", "flow", "reverse_flow", "edm"] = "epsilon"
    family: Literal["vp", "flow", "edm", "ve"] = "vp"
    clock: Literal["timesteps", "t", "1 - t", "1000 t", "sigma", "log sigma / 4"] = "timesteps"
    """What the network is told, in continuous time."""
    density: Literal["logit-normal", "uniform", "shift 3", "log-normal", "high", "low"] = "logit-normal"
    solver: Literal["euler", "heun"] = "euler"
    denoised: bool = False
    """EDM: the loss is that of the denoised image, weighted by 1 / c_out²."""
    declared: bool = True
    """Whether the watch is told process and prediction."""
    conditional: bool = True
    label_drop: float = 0.1
    imbalance: bool = False
    """Class c is drawn 1 / (1 + c) as often as class 0."""
    spread: float = 1.0
    """Factor on the images: a little less or more than [-1, 1]."""
    offset_noise: float = 0.0
    sampling: Literal["uniform", "stratified", "logit-normal", "shared"] = "uniform"
    loss: Literal["l2", "l1", "huber"] = "l2"
    weighting: Literal["none", "min-snr"] = "none"
    told: Literal["scalar", "per sample"] = "scalar"
    """How the loss is given to the watch."""
    reduction: Literal["mean", "sum"] = "mean"
    optimizer: Literal["adamw", "sgd", "lion"] = "adamw"
    lr: float = 2e-3
    warmup: int = 20
    rate: Literal["cosine", "constant", "restarts"] = "cosine"
    weight_decay: float = 0.01
    clip: float | None = 1.0
    ema: float | None = 0.99
    dropout: float = 0.0
    zero_init: bool = True
    frozen: bool = False
    """Part of the model is frozen on purpose: no gradient, and not in the optimizer."""
    micro_batches: int = 1
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    scaler: bool = False
    bare: bool = False
    """The watched model is the diffusers model itself, whose answer is an object with `.sample`."""
    trained: int = 0
    """Steps of healthy training before the run begins, unwatched."""
    guidance: float = 1.0

    def changed(self, **changes: Any) -> Options:
        return replace(self, **changes)


def defaults(base: Base) -> Options:
    if base == "mixture":
        return Options()
    if base == "plain":
        return Options(steps=100, batch=32, count=1500, schedule="linear", zero_init=False, warmup=10, ema=0.95)
    if base == "flow":
        return Options(
            steps=100, batch=32, count=1500, prediction="flow", family="flow", clock="1000 t", warmup=10, ema=0.95
        )
    if base == "edm":
        return Options(
            steps=100, batch=32, count=1500, prediction="edm", family="edm", clock="log sigma / 4",
            density="log-normal", warmup=10, ema=0.95,
        )  # fmt: skip
    return Options(steps=80, batch=32, prediction="v_prediction", warmup=8)
