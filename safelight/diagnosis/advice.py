"""Advice in words that fit the loop it is given to: a loop that is not ours has none of our settings."""

from __future__ import annotations

import re
from dataclasses import replace

from safelight.diagnosis.finding import Fix

# What a setting or a command is called in a loop of somebody else; longer texts first.
PLAIN = {
    "clipping.kind adaptive": "clip gradients by their norm",
    "ema.kind power, or ema.warmup true, or a smaller ema.decay": "let the EMA's decay begin small, or lower it",
    " (data.cache)": "",
    "the images and timesteps that the event names": "the images and timesteps of that step",
    "With --heal the step is repeated": "Load the last checkpoint and repeat the step",
    "optimizer.lr": "the learning rate",
    "optimizer.warmup": "the warm-up",
    "optimizer.beta2": "beta2 of the optimizer",
    "optimizer.weight_decay": "a weight decay of",
    "train.steps": "the number of steps",
    "train.precision": "the precision",
    "train.batch_size": "the batch size",
    "model.widths": "the widths of the network",
    "model.dropout": "the dropout",
    "sample.guidance": "the guidance",
    "data.workers": "the number of workers",
    "ema.width": "the width of the EMA",
    "ema.decay": "the decay of the EMA",
}


def for_other_loop(fix: Fix) -> Fix:
    """Without settings, and in words that every loop has."""
    settings = re.compile("|".join(map(re.escape, PLAIN)))
    text = settings.sub(lambda match: PLAIN[match[0]], fix.text)
    begins_with_setting = settings.match(fix.text) is not None  # and not with code, such as torch.no_grad()
    return replace(fix, text=text[:1].upper() + text[1:] if begins_with_setting else text, set={})
