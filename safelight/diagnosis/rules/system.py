"""Time and memory that are wasted: a loader that keeps the device waiting, sampling with gradients."""

from __future__ import annotations

from safelight import checks
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Detection, Rule, on_latest, warning
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
        severity="warning",
        fix=Fix(
            "Let threads prepare batches ahead, or put the cache on a faster disk (data.cache).",
            {"data.workers": 4},
            "safe",
        ),
    )


RULES = (
    Rule(
        code="SYS001",
        cause="system.starved-loader",
        title="Training waits for images",
        what="Most of a step is spent waiting for its batch.",
        why="The device is idle: the same run could take half the time.",
        similar="A slow step with little waiting is the model's own work.",
        limits="Waiting in loops that are not ours: it is not measured.",
        fix="data.workers, a faster disk for data.cache.",
        needs=(DATA_WAIT,),
        detect=starved_loader,
    ),
    warning(
        code="SYS002",
        cause="system.sampling-with-gradients",
        title="Sampling with gradients",
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
