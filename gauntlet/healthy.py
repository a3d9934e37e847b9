"""Recipes that are odd and healthy: whoever complains about one of these is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from gauntlet.loop_parts import LoopParts
from gauntlet.options import BASES, CONTINUOUS, FOREIGN, Base, Shown


def nothing(_: Any) -> None: ...


@dataclass(frozen=True)
class Recipe:
    about: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    bases: tuple[Base, ...] = FOREIGN
    shown: Shown = "all"
    prepare: Callable[[Any], None] = nothing


def schedule_by_tensor(run: Any) -> None:
    run.schedule = run.table.clone()


def clip_by_value(run: LoopParts) -> None:
    def clipped() -> None:
        torch.nn.utils.clip_grad_value_(run.model.parameters(), 0.1)

    run.clip = clipped


def two_groups(run: Any) -> None:
    """Biases and norms without decay, as a second group of the same optimizer."""
    group = run.optimizer.param_groups[0]
    free = [p for p in group["params"] if p.dim() < 2]
    group["params"] = [p for p in group["params"] if p.dim() >= 2]
    run.optimizer.add_param_group({"params": free, "weight_decay": 0.0})


RECIPES: dict[str, Recipe] = {
    "as-it-is": Recipe("the base itself", bases=BASES),
    "linear": Recipe("linear betas", {"schedule": "linear"}, BASES),
    "cosine": Recipe("cosine betas up to 0.999", {"schedule": "cosine"}, BASES),
    "batch-of-4": Recipe("batches of four", {"batch": 4, "lr": 5e-4}, BASES),
    "zero-init": Recipe("an output layer of zeros", {"zero_init": True}, BASES),
    "default-init": Recipe("the output layer as torch makes it", {"zero_init": False}, BASES),
    "bf16": Recipe("autocast to bfloat16", {"precision": "bf16"}, BASES),
    "fp16": Recipe("autocast to half precision with a scaler", {"precision": "fp16", "steps": 100}, ("mixture",)),
    "scaler": Recipe("a gradient scaler that has nothing to do", {"scaler": True}),
    "v-prediction": Recipe("the velocity is predicted", {"prediction": "v_prediction"}, BASES),
    "x0-prediction": Recipe("the image is predicted", {"prediction": "sample"}, BASES),
    "epsilon": Recipe("the noise is predicted", {"prediction": "epsilon"}, BASES),
    "min-snr": Recipe("min-SNR weights", {"weighting": "min-snr"}, BASES),
    "min-snr-v": Recipe("min-SNR weights on velocities", {"weighting": "min-snr", "prediction": "v_prediction"}, BASES),
    "per-sample-loss": Recipe("one loss per sample is told", {"told": "per sample"}),
    "sum": Recipe("the loss is a sum", {"reduction": "sum"}),
    "l1": Recipe("absolute errors", {"loss": "l1"}, BASES),
    "huber": Recipe("Huber's loss", {"loss": "huber"}, BASES),
    "always-clipping": Recipe("a clip that is always active, which Adam does not feel", {"clip": 1e-3}, BASES),
    "no-clipping": Recipe("no clip", {"clip": None}, BASES),
    "clip-by-value": Recipe("gradients clipped by value", prepare=clip_by_value),
    "restarts": Recipe("warm restarts of the rate", {"rate": "restarts"}),
    "constant-rate": Recipe("a constant rate without warmup", {"rate": "constant", "warmup": 0, "lr": 5e-4}),
    "fine-tuning": Recipe(
        "a trained model at a millionth", {"trained": 200, "lr": 1e-6, "warmup": 0, "rate": "constant"}
    ),
    "plateau": Recipe("a trained model trained on", {"trained": 300, "lr": 5e-4}, ("mixture",)),
    "few-images": Recipe("64 images", {"count": 64}),
    "logit-normal": Recipe("timesteps of the middle are drawn more often", {"sampling": "logit-normal"}),
    "stratified": Recipe("timesteps spread evenly over each batch", {"sampling": "stratified"}, BASES),
    "sgd": Recipe("SGD with momentum", {"optimizer": "sgd", "lr": 0.05}),
    "lion": Recipe("an optimizer of one's own", {"optimizer": "lion", "lr": 1e-3}),
    "dropout": Recipe("a tenth is dropped", {"dropout": 0.1}, BASES),
    "long-average": Recipe("an average of 0.9999 that begins short", {"ema": 0.9999}, BASES),
    "no-average": Recipe("no average", {"ema": None}),
    "accumulation": Recipe("four micro-batches", {"micro_batches": 4}, BASES),
    "imbalanced": Recipe("classes of unequal size", {"imbalance": True}),
    "unconditional": Recipe("no labels", {"conditional": False}, BASES),
    "bare-unet": Recipe(
        "the U-Net itself, which answers with an object", {"conditional": False, "bare": True}, ("plain",)
    ),
    "offset-noise": Recipe("noise with a little offset per channel", {"offset_noise": 0.05}),
    "weight-decay": Recipe("a weight decay of 0.1", {"weight_decay": 0.1}, BASES),
    "two-groups": Recipe("two groups of weights", prepare=two_groups),
    "frozen-part": Recipe("a part frozen on purpose, outside of the optimizer", {"frozen": True}),
    "narrow": Recipe("images in [-0.8, 0.8]", {"spread": 0.8}),
    "wide": Recipe("images in [-1.1, 1.1]", {"spread": 1.1}),
    "low-rate": Recipe("a third of the rate", {"lr": 7e-4}, BASES),
    "table": Recipe("the schedule is told as a tensor", prepare=schedule_by_tensor, bases=("mixture",)),
    "loss-only": Recipe("the watch is told the loss only", shown="loss"),
    "loss-and-t": Recipe("the watch is told loss and timesteps", shown="loss and t"),
    "fewer-timesteps": Recipe("250 timesteps, cosine", {"timesteps": 250, "schedule": "cosine"}),
    # In continuous time.
    "declared": Recipe("flow matching or EDM as it is, declared", bases=CONTINUOUS),
    "undeclared": Recipe("nothing is declared", {"declared": False}, CONTINUOUS),
    "uniform-times": Recipe("uniform times", {"density": "uniform"}, ("flow",)),
    "shift-3": Recipe("times shifted by 3", {"density": "shift 3"}, ("flow",)),
    "shift-3-undeclared": Recipe("the same, undeclared", {"density": "shift 3", "declared": False}, ("flow",)),
    "heun": Recipe("a sampler of second order", {"solver": "heun"}, CONTINUOUS),
    "heun-undeclared": Recipe("the same, undeclared", {"solver": "heun", "declared": False}, CONTINUOUS),
    "flow-min-snr": Recipe("min-SNR weights of a flow", {"weighting": "min-snr"}, CONTINUOUS),
    "min-snr-undeclared": Recipe("the same, undeclared", {"weighting": "min-snr", "declared": False}, CONTINUOUS),
    "unit-time": Recipe("t in [0, 1]", {"clock": "t"}, ("flow",)),
    "unit-time-undeclared": Recipe("the same, undeclared", {"clock": "t", "declared": False}, ("flow",)),
    "towards-data": Recipe("from noise to image", {"clock": "1 - t", "prediction": "reverse_flow"}, ("flow",)),
    "towards-data-undeclared": Recipe(
        "the same, undeclared", {"clock": "1 - t", "prediction": "reverse_flow", "declared": False}, ("flow",)
    ),
    "x0-under-flow": Recipe("x0-prediction", {"prediction": "sample"}, ("flow",)),
    "x0-under-flow-undeclared": Recipe("the same, undeclared", {"prediction": "sample", "declared": False}, ("flow",)),
    "v-under-flow": Recipe("v-prediction", {"prediction": "v_prediction"}, ("flow",)),
    "v-under-flow-undeclared": Recipe(
        "the same, undeclared", {"prediction": "v_prediction", "declared": False}, ("flow",)
    ),
    "high-expert": Recipe("an expert of high noise", {"density": "high"}, CONTINUOUS),
    "high-expert-undeclared": Recipe("the same, undeclared", {"density": "high", "declared": False}, CONTINUOUS),
    "low-expert": Recipe("an expert of low noise", {"density": "low"}, ("flow",)),
    "ve": Recipe("x0 + σ·noise, unscaled", {"family": "ve", "prediction": "epsilon", "clock": "sigma"}, ("edm",)),
    "ve-undeclared": Recipe(
        "the same, undeclared",
        {"family": "ve", "prediction": "epsilon", "clock": "sigma", "declared": False},
        ("edm",),
    ),
    "sigma-told": Recipe("the network is told σ", {"clock": "sigma"}, ("edm",)),
    "sigma-told-undeclared": Recipe("the same, undeclared", {"clock": "sigma", "declared": False}, ("edm",)),
    "denoised": Recipe("EDM's loss of the denoised image, weighted", {"denoised": True}, ("edm",)),
    "denoised-undeclared": Recipe("the same, undeclared", {"denoised": True, "declared": False}, ("edm",)),
    "each-loss": Recipe("the loss of each sample", {"told": "per sample"}, CONTINUOUS),
    "two-micro-batches": Recipe("accumulation", {"micro_batches": 2}, CONTINUOUS),
    "unconditional-flow": Recipe("no labels", {"conditional": False}, CONTINUOUS),
    "told-loss-only": Recipe("the watch is told the loss only", shown="loss", bases=CONTINUOUS),
    "told-loss-and-t": Recipe("the watch is told loss and times", shown="loss and t", bases=CONTINUOUS),
    "told-loss-and-t-undeclared": Recipe(
        "the same, undeclared", {"declared": False}, shown="loss and t", bases=CONTINUOUS
    ),
}
