"""The causes that a finding may name: what the gauntlet expects of a doctor, written down before there were rules."""

from __future__ import annotations

_WORDS = {
    "data": "nonfinite duplicates blank not-shuffled shifted held-out-overlap same-batch",
    "scale": "range-0-1 range-0-255 integer wrong-std outside sigma-data",
    "conditioning": "ignored permuted never-dropped always-dropped guidance one-class",
    "schedule": "not-decreasing signal-left zero-snr-epsilon",
    "timesteps": "gap shuffled repeated constant out-of-range not-passed-on not-the-noise scaled density-swapped",
    "forward": "other-schedule noise-not-normal clamped no-noise not-the-formula noise-repeated input-not-scaled",
    "target": "other-type fresh-noise wrong other-noise against-time of-another-process not-a-velocity scaled "
    "other-sigma-data",
    "loss": "sign nonfinite weight-nonfinite not-of-prediction detached shape weighting diverged spike drop rise "
    "oscillation plateau ruined not-learning undertrained",
    "model": (
        "zero-init init-gain bounded-output dead-units no-gradient frozen dropout blind-to-timestep "
        "embedding-collapsed batch-coupling output-shape nonfinite skip-cut too-small "
        "vanishing-gradient"
    ),
    "optimizer": (
        "no-update no-zero-grad other-parameters missing-parameters maximize weight-decay zeroed-gradients "
        "not-its-update"
    ),
    "lr": "too-high too-low zero no-warmup ended-early jump",
    "ema": "too-long frozen low-precision every-micro-batch not-sampled not-an-average",
    "mode": "eval-in-training train-in-sampling",
    "precision": "no-scaler scale-halving lost-updates overflow transient",
    "clipping": "before-unscale outlier-batches large-gradients",
    "accumulation": "sum short-window",
    "distributed": "drift same-noise overlap straggler",
    "checkpoint": "optimizer-lost average-lost not-exact",
    "sampler": "last-noise starts-late clipped other-schedule other-type other-times wrong",
    "evaluation": "self-test",
    "generalisation": (
        "copies overfitting missing-modes crowded missing-kinds too-little-variety vague "
        "no-better-than-gaussian undertrained"
    ),
    "system": "starved-loader out-of-memory sampling-with-gradients",
}
CAUSES = {f"{subsystem}.{word}" for subsystem, words in _WORDS.items() for word in words.split()}
