"""Safelight trains diffusion models and keeps watch over the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "EMA",
    "FID",
    "AdaptiveClipper",
    "Checkpoints",
    "Config",
    "Diversity",
    "FiniteGuard",
    "Process",
    "Run",
    "SampleGrid",
    "auto",
    "captured",
    "check",
    "check_finite",
    "diagnose",
    "estimate",
    "evaluate",
    "open",
    "resume",
    "train",
    "watch",
]

if TYPE_CHECKING:
    from safelight import evaluate
    from safelight.checkpoints.saves import Checkpoints
    from safelight.config import Config
    from safelight.diagnosis import diagnose
    from safelight.diffusion.process import Process
    from safelight.evaluate.fid import FID
    from safelight.evaluate.variety import Diversity
    from safelight.healing.finite_guard import FiniteGuard
    from safelight.library import open, resume, train
    from safelight.model.estimate import estimate
    from safelight.monitors.finite import check_finite
    from safelight.trained import Run
    from safelight.training.clipping import AdaptiveClipper
    from safelight.training.ema import EMA
    from safelight.watching import watch
    from safelight.watching.auto import auto, captured
    from safelight.watching.debugger import check
    from safelight.watching.samples.sample_grid import SampleGrid

_PACKAGES = ("evaluate",)  # used as they are: safelight.evaluate.frechet(a, b)
_HOMES = {
    "Checkpoints": "safelight.checkpoints.saves",
    "FiniteGuard": "safelight.healing.finite_guard",
    "check_finite": "safelight.monitors.finite",
    "AdaptiveClipper": "safelight.training.clipping",
    "Config": "safelight.config",
    "Diversity": "safelight.evaluate.variety",
    "FID": "safelight.evaluate.fid",
    "diagnose": "safelight.diagnosis",
    "EMA": "safelight.training.ema",
    "estimate": "safelight.model.estimate",
    "evaluate": "safelight.evaluate",
    "Process": "safelight.diffusion.process",
    "Run": "safelight.trained",
    "SampleGrid": "safelight.watching.samples.sample_grid",
    "auto": "safelight.watching.auto",
    "captured": "safelight.watching.auto",
    "check": "safelight.watching.debugger",
    "open": "safelight.library",
    "resume": "safelight.library",
    "train": "safelight.library",
    "watch": "safelight.watching",
}

# What a part is called in tutorials on training diffusion models: docs/tutorial.md.
_TUTORIAL_NAMES = {
    "AdaptiveGradientClipper": "safelight.AdaptiveClipper",
    "CheckpointedUNet": "safelight.model.unet.checkpoint_blocks",
    "DiffusionDebugger": "safelight.check",
    "DiversityAnalyzer": "safelight.Diversity",
    "FIDCalculator": "safelight.FID",
    "GradientMonitor": "safelight.watch",
    "LossMonitor": "safelight.watch",
    "SampleVisualizer": "safelight.SampleGrid",
    "TrainingMonitor": "safelight.watch",
    "detect_nan": "safelight.check_finite",
    "diagnose_lr_issues": "safelight.diagnose(losses=[…])",
    "estimate_memory": "safelight.estimate",
    "get_optimizer": "safelight.training.optimizer.parameter_groups",
    "initialize_weights": "safelight.model.unet.initialise",
    "load_checkpoint": "safelight.Checkpoints",
    "save_checkpoint": "safelight.Checkpoints",
}


def __getattr__(name: str) -> Any:
    """Torch is imported only when something that needs it is asked for, so that `--help` answers at once."""
    import importlib

    if name not in _HOMES:
        here = _TUTORIAL_NAMES.get(name)
        hint = f". It is {here} here: see `safelight docs tutorial`." if here else ""
        raise AttributeError(f"module 'safelight' has no attribute {name!r}{hint}")
    home = importlib.import_module(_HOMES[name])
    return home if name in _PACKAGES else getattr(home, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING", "annotations"})
