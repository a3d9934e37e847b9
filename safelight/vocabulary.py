"""The words that every layer shares: signals, and the catalogue of all of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing that is measured."""

    name: str  # area/quantity
    unit: str
    meaning: str  # one sentence: tooltip, docs and help print this


LOSS = Signal("loss/mean", "1", "Unweighted loss of the step's batch.")
LEARNING_RATE = Signal("optimizer/lr", "1", "Learning rate as it was applied.")
GRADIENT_NORM = Signal("gradient/norm", "1", "L2 norm of all gradients, after unscaling and before clipping.")
CLIP_LIMIT = Signal("gradient/limit", "1", "Norm that gradients were clipped to.")
REFUSED = Signal("update/refused", "1", "1 if the update was refused because something was not finite.")
LOSS_SCALE = Signal("precision/scale", "1", "Factor on the loss in fp16 training; 1 in other precisions.")
PROBE_RAW = Signal("probe/raw", "1", "Loss of the raw weights on the fixed probe set.")
PROBE_EMA = Signal("probe/ema", "1", "Loss of the averaged weights on the fixed probe set.")
SPEED = Signal("speed/images", "images/s", "Images trained on per second, pictures and checkpoints left out.")
DATA_WAIT = Signal("speed/data_wait", "1", "Share of the step spent waiting for its batch.")

SIGNALS: tuple[Signal, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Signal))
