"""Time and memory that are wasted: a loader that keeps the device waiting, sampling with gradients."""

from __future__ import annotations

from safelight import checks
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Detection, on_latest, warning
from safelight.diagnosis.run_history import RunHistory
from safelight.vocabulary import DATA_WAIT

SHARE, LOOKS = 0.3, 4  # the demo waits 0.9 % of a step; four looks are 64 steps


def starved_loader(run: RunHistory) -> Detection | None:
    steps, shares = run.series(DATA_WAIT)
    episode = run.episode(DATA_WAIT, lambda shares: shares > SHARE, LOOKS)
    if len(steps) < LOOKS + 1 or episode is None or episode.over is not None:
        return None
    share = float(shares[-LOOKS:].mean())
    return Detection(
        episode.first,
        f"{share:.0%} of every step is spent waiting for images.",
        (Evidence(DATA_WAIT.name, share, (episode.first, episode.last), "below 0.05"),),
        ("a slow start: only the last 64 steps are counted",),
    )


RULES = (
    warning("SYS001", "system.starved-loader", "Training waits for images")(
        what="Most of a step is spent waiting for its batch.",
        why="The device is idle: the same run could take half the time.",
        similar="A slow step with little waiting is the model's own work.",
        limits="Waiting in loops that are not ours: it is not measured.",
        fix="Let threads prepare batches ahead, or put the cache on a faster disk (data.cache).",
        default_fix=Fix("", {"data.workers": 4}, "safe"),
        needs=(DATA_WAIT,),
        detect=starved_loader,
    ),
    warning("SYS002", "system.sampling-with-gradients", "Sampling with gradients")(
        what="Gradients are not switched off while samples are drawn.",
        why="Memory grows with every step of the sampler, for nothing.",
        fix="torch.no_grad() or torch.inference_mode() around the sampler.",
        needs=(checks.SAMPLER_WITH_GRADIENTS,),
        detect=on_latest(
            {checks.SAMPLER_WITH_GRADIENTS: "0"},
            lambda flag: flag == 1,
            "The sampler keeps the graph for gradients: its memory grows with every step.",
        ),
    ),
)
