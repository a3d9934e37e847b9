"""Two faults at once: a doctor should name both."""

from __future__ import annotations

from typing import Any

from gauntlet.options import BASES, FOREIGN, Base

Deeds = tuple[tuple[str, Any], ...]

DOUBLES: tuple[tuple[Deeds, tuple[Base, ...]], ...] = (
    ((("leave-in-0-1", None), ("never-average", None)), ("plain", "own")),
    ((("draw-low-part", 2), ("raise-rate", 100.0)), BASES),
    ((("ask-for-other-type", 1), ("average-too-long", 0.99999)), BASES),
    ((("permute-labels", None), ("clamp-noised", None)), BASES),
    ((("never-zero", None), ("never-average", None)), BASES),
    ((("start-late", 500), ("leave-out-half", None)), FOREIGN),
    ((("ignore-labels", None), ("noise-by-other-schedule", None)), BASES),
    ((("cut-time-embedding", None), ("decay-heavily", 100.0)), BASES),
    ((("bound-output", "tanh"), ("keep-noise", None)), BASES),
    ((("shuffle-timesteps", None), ("sample-by-other-schedule", None)), FOREIGN),
    ((("lower-rate", 1000.0), ("always-drop-labels", None)), BASES),
    ((("draw-other-noise", "0 to 1"), ("freeze-half", None)), BASES),
)
