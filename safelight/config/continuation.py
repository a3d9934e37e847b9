"""Which settings a resume may change, and what a checkpoint keeps of the others."""

from __future__ import annotations

from typing import Any

from safelight.config.resolve import flatten, to_dict
from safelight.config.tree import Config

# What a resume may change without changing what is trained. With the first group even the bits stay the same.
SAME_BITS = {"checkpoint.every", "checkpoint.keep_last", "checkpoint.keep_every", "checkpoint.keep_best",
             "sample.every", "sample.budget", "sample.count", "sample.sampler", "sample.steps", "sample.guidance",
             "data.workers", "data.source", "data.cache", "data.scan_workers", "data.max_bad", "data.max_pixels",
             "data.max_megabytes", "data.max_seconds", "data.max_memory", "train.max_refused", "train.patience",
             "train.preflight", "train.probe_budget", "train.timeout", "train.grace", "log.to", "log.project",
             "evaluate.every", "evaluate.budget",
             "evaluate.samples", "evaluate.references", "evaluate.features", "evaluate.components",
             "evaluate.target", "evaluate.significance", "heal.enabled", "heal.budget"}  # fmt: skip
SAME_MEANING = {"train.device", "train.weights", "train.accumulate", "train.shards", "train.threads", "model.compile",
                "model.compile_mode",
                "model.channels_last", "model.gradient_checkpointing"}  # fmt: skip


def settings_affecting_result(config: Config) -> dict[str, Any]:
    """The settings that the bytes of a run depend on, as a checkpoint keeps them."""
    return {key: value for key, value in flatten(to_dict(config)).items() if key not in SAME_BITS}
