"""Which column of a log is the loss, the learning rate, the gradient norm: by the names that the field gives them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from safelight.diagnosis.logs.cells import STEP

Role = Literal["step", "epoch", "loss", "validation loss", "learning rate", "gradient norm", "loss scale", "EMA decay"]
HELD_OUT = {"val", "valid", "validation", "eval", "evaluation", "test", "dev", "heldout", "held"}
# Words that say nothing but that it is the loss of the training.
PLAIN = {"loss", "losses", "train", "training", "trainer", "step", "steps", "batch", "current", "total", "mean", "raw",
         "unet", "diffusion", "denoising", "mse", "l2", "simple", "main", "iter", "iteration", "global", "scalar",
         "scalars", "metric", "metrics", "log", "logs", "value", "stats", "optimizer", "model"}  # fmt: skip
SMOOTH = {"avg", "average", "averaged", "epoch", "running", "ema", "smooth", "smoothed", "moving", "interval"}
SINGLE = {"step", "current", "batch", "iter", "raw"}
STEPS = (STEP, "global step", "trainer global step", "step", "train step", "train global step", "training step",
         "optimizer step", "update", "updates", "num updates", "steps", "iteration", "iterations", "iter", "iters",
         "it", "n iter", "current step", "progress step")  # fmt: skip
SECOND_STEPS = ("internal step",)  # W&B counts its own calls as _step
EPOCHS = ("epoch", "epochs", "train epoch", "progress epoch", "kimg", "progress kimg", "tick", "progress tick", "nimg")
OF_GRADIENT = {"grad", "grads", "gradient", "gradients"}
OF_NORM = {
    "norm",
    "total",
    "global",
    "l2",
    "2",
    "0",
    "all",
    "before",
    "after",
    "pre",
    "post",
    "clip",
    "clipping",
    "clipped",
}
NOT_A_RATE = {"momentum", "decay", "wd", "betas", "d", "scheduler", "min", "max", "base", "scale"}


@functools.lru_cache(maxsize=4096)
def words_of(name: str) -> tuple[str, ...]:
    """trainLoss, train/loss, Train Loss (step): train, loss. W&B exports write `run - loss`."""
    if name == STEP:
        return (STEP,)
    if name == "_step":
        return ("internal", "step")
    name = name.rpartition(" - ")[2].removesuffix("/mean")
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return tuple(word for word in re.split(r"[^a-z0-9]+", parted.lower()) if word)


@functools.lru_cache(maxsize=4096)
def role_of(name: str) -> Role | None:
    """What a column may be; several may be the same."""
    if name.endswith(("__MIN", "__MAX", "/std", "/num", "/min", "/max")):
        return None
    words = words_of(name)
    has, phrase = set(words), " ".join(words)
    if phrase in STEPS or phrase in SECOND_STEPS:
        return "step"
    if phrase in EPOCHS:
        return "epoch"
    if {"scale", "scaler", "scaling"} & has and {"loss", "grad", "scaler", "amp"} & has:
        return "loss scale"
    if (OF_GRADIENT & has and "norm" in has) or {"gradnorm", "gnorm"} & has:
        return "gradient norm" if has <= PLAIN | OF_GRADIENT | OF_NORM | {"gradnorm", "gnorm"} else None
    if "decay" in has and "ema" in has:
        return "EMA decay"
    if ("lr" in has or "learningrate" in has or {"learning", "rate"} <= has) and not NOT_A_RATE & has:
        return "learning rate"
    if "loss" in has or "losses" in has or phrase in ("mse", "train mse", "objective"):
        return "validation loss" if HELD_OUT & has else "loss"
    return None


def best(names: Iterable[str], role: Role) -> list[str]:
    """The columns of a role, the one to take first."""
    return sorted((name for name in names if role_of(name) == role), key=lambda name: (*_distance(name, role), name))


def _distance(name: str, role: Role) -> tuple[int, int, int]:
    words = words_of(name)
    if role in ("step", "epoch"):
        known: Sequence[str] = (*STEPS, *SECOND_STEPS, *EPOCHS)
        return (known.index(" ".join(words)), 0, 0)
    others = len(set(words) - PLAIN - SMOOTH - HELD_OUT)
    smooth = len(set(words) & SMOOTH) - (not set(words) & SMOOTH and bool(set(words) & SINGLE))
    return (others if role == "loss" else 0, smooth, len(words))


def is_part(name: str) -> bool:
    """A loss with a word of its own, such as gen_loss: one of several that are added up, or not the loss at all."""
    return bool(set(words_of(name)) - PLAIN - SMOOTH)
