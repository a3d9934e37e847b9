"""Samplers that do not return what a perfect network tells them."""

from __future__ import annotations

from safelight.config.tree import Schedule
from safelight.diagnosis.case import Case
from safelight.diagnosis.rule import Rule, Seen
from safelight.diagnosis.rules.target import KINDS

TABLES: tuple[Schedule, ...] = ("cosine", "linear", "scaled-linear", "sigmoid")  # told by their place: never reorder
RIGHT = 0.003  # error over the pictures' size: sound samplers of 10 to 1,000 steps stay below 1e-6 on a CPU
ENOUGH_CALLS = 12  # with fewer steps a cloud comes out too narrow, however right the sampler
FEWEST_CALLS = 5  # one or two steps miss the answer, however right they are
LATE = 0.9  # the first timestep over the last one; 20 steps of "leading" begin at 0.95
SPREADS = (0.5, 1.6)  # of a cloud; samplers of 10 to 50 steps return 0.75 to 1.0


def _kind(case: Case) -> str | None:
    if case.newest("sampler/calls", 1.0) == 0:
        return "wrong"
    if not len(case.check("sampler/finite")[1]):
        return None
    if not case.newest("sampler/finite"):
        return "wrong"
    if case.newest("sampler/calls", 0.0) < FEWEST_CALLS:
        return None
    left, scale, shift = (case.newest(f"sampler/{name}") for name in ("left", "scale", "shift"))
    usual = ((1.0, 0.0), (0.5, 0.5), (127.5, 127.5))
    low, high = SPREADS
    spread = case.newest("sampler/cloud_spread", 1.0) if case.newest("sampler/calls", 0.0) >= ENOUGH_CALLS else 1.0
    close = left <= RIGHT and any(abs(scale / a - 1) < 0.02 and abs(shift - b) < 0.02 * a for a, b in usual)
    late = case.newest("sampler/first", 1.0) < LATE
    if not close or not low < spread < high:
        if len(case.check("sampler/right_for_type")[1]):
            return "other-type"
        if len(case.check("sampler/right_for_table")[1]):
            return "other-schedule"
        if _counts(case):
            return "wrong"
        limit = case.newest("sampler/largest") < 0.98 * case.newest("sampler/reach")
        if limit and case.newest("sampler/at_limit") > 0.1:
            return "clipped"
        if late:
            return "wrong" if _counts(case) else "starts-late"
        if close:
            return "wrong"
        sound = abs(scale - 1) < 0.05 and abs(shift) < 0.05 and 0.5 < case.newest("sampler/path", 1.0) < 1.3
        return "last-noise" if sound and left < 0.5 else "wrong"
    if late:
        return "wrong" if _counts(case) else "starts-late"
    path = case.newest("sampler/path", 1.0)
    if not 0.8 < case.newest("sampler/start", 1.0) < 1.25:
        return "wrong"
    if path > 1.4:
        return "wrong" if _counts(case) else "other-schedule"
    if not 0.1 < case.newest("sampler/share", 0.5) < 0.9:
        return "wrong"
    return None


def _counts(case: Case) -> bool:
    """Whether the network is told the number of the step in place of its timestep."""
    return case.newest("sampler/highest_time") <= case.newest("sampler/calls")


def _look(case: Case, disease: str) -> Seen | None:
    if _kind(case) != disease:
        return None
    left, first = case.newest("sampler/left"), case.newest("sampler/first")
    words = {
        "last-noise": f"Noise is left in the samples ({left:.1%} of their size), though the network knew the answer: "
        f"it "
        "is added after the last step.",
        "starts-late": f"Sampling begins at {first:.0%} of the timesteps, from pure noise that the network takes for a "
        "faint image.",
        "clipped": f"The sampler cuts off at {case.newest('sampler/largest'):.3g}, where the data reach to "
        f"{case.newest('sampler/reach'):.3g}.",
        "other-schedule": "The sampler follows another table of noise levels than is trained with"
        + (f": it is right for {TABLES[int(case.newest('sampler/right_for_table', 0.0))]}."
           if len(case.check("sampler/right_for_table")[1]) else "."),
        "other-type": "The sampler takes the prediction for "
        f"{KINDS[int(case.newest('sampler/right_for_type', 0.0))]}, which is not what is declared.",
        "wrong": "Driven by a network that knows the answer, the sampler "
        + (f"misses it by {left:.0%}." if left > RIGHT else "returns it with another spread, or on another way."),
    }  # fmt: skip
    names = (("sampler/left", "below 0.003"), ("sampler/scale", "1"), ("sampler/first", "above 0.9"),
             ("sampler/path", "below 1.4"), ("sampler/cloud_spread", "0.5 to 1.6"))  # fmt: skip
    return Seen(
        case.asked("sampler/calls"),
        words[disease],
        tuple(case.evidence(name, usual) for name, usual in names),
        ("the model: the sampler was driven by an exact one in its place",),
    )


def look_last_noise(case: Case) -> Seen | None:
    return _look(case, "last-noise")


def look_starts_late(case: Case) -> Seen | None:
    return _look(case, "starts-late")


def look_clipped(case: Case) -> Seen | None:
    return _look(case, "clipped")


def look_other_schedule(case: Case) -> Seen | None:
    return _look(case, "other-schedule")


def look_other_type(case: Case) -> Seen | None:
    return _look(case, "other-type")


def look_wrong(case: Case) -> Seen | None:
    return _look(case, "wrong")


def look_gradients(case: Case) -> Seen | None:
    if case.newest("sampler/with_gradients", 0.0) != 1:
        return None
    return Seen(
        case.asked("sampler/calls"),
        "The sampler keeps what gradients would need: its memory grows with every step.",
        (case.evidence("sampler/with_gradients", "0"),),
    )


WAY = "The run's own sampler is driven by the exact denoiser of two pictures and of a cloud, which must come out again."
YIELDS = ("schedule.not-decreasing", "schedule.zero-snr", "schedule.signal-left", "scale.")

RULES = (
    Rule(
        code="SAM001",
        cause="sampler.last-noise",
        title="Noise after the last step",
        what=f"{WAY} They do, with noise on top.",
        why="Every sample is grainy, however good the model.",
        alike="A model that has not learnt small noise levels is grainy too; here the model is perfect.",
        misses="Noise below 0.3 %.",
        fix="No noise at the last step: where t is 0, return the mean.",
        look=look_last_noise,
        yields=YIELDS,
    ),
    Rule(
        code="SAM002",
        cause="sampler.starts-late",
        title="Sampling begins too late",
        what="The first timestep that is asked for is far from the last one of the schedule.",
        why="The network is told that pure noise is a faint image, and draws one: brightness and layout suffer.",
        alike="A schedule that leaves signal at its end is schedule.signal-left.",
        misses="Beginnings within a tenth of the end.",
        fix='timestep_spacing="trailing".',
        look=look_starts_late,
        yields=YIELDS,
    ),
    Rule(
        code="SAM003",
        cause="sampler.clipped",
        title="Samples are cut off",
        what="The sampler clamps to less than the data reach.",
        why="Strong values are lost at every step: washed-out samples.",
        alike="",
        misses="A limit beyond two thirds of the data's.",
        fix="clip_sample=False, or a limit that the data have.",
        look=look_clipped,
        yields=YIELDS,
    ),
    Rule(
        code="SAM004",
        cause="sampler.other-schedule",
        title="Sampling by another schedule",
        what=f"{WAY} They do for another table, or the noise on the way is not what the table says.",
        why="Noise is taken off too fast or too slowly: noisy or dull samples from a good loss.",
        alike="Training by another table is forward.other-schedule.",
        misses="",
        fix="Make the sampler from the training scheduler: Scheduler.from_config(training.config).",
        look=look_other_schedule,
        yields=(*YIELDS, "forward.other-schedule"),
    ),
    Rule(
        code="SAM005",
        cause="sampler.other-type",
        title="The sampler expects another prediction",
        what=f"{WAY} They do when the denoiser answers in another prediction type than is declared.",
        why="Garbage from a good loss.",
        alike="",
        misses="",
        fix="Set prediction_type of the sampler to what is trained.",
        look=look_other_type,
        yields=("target.other-type",),
    ),
    Rule(
        code="SAM006",
        cause="sampler.wrong",
        title="A sampler that misses a known answer",
        what=f"{WAY} They do not.",
        why="Samples are bad, however good the model.",
        alike="Known mistakes have names of their own: SAM001 to SAM005.",
        misses="Mistakes that only show with labels or guidance.",
        fix="Compare it with a scheduler of diffusers step by step.",
        look=look_wrong,
        yields=YIELDS,
    ),
    Rule(
        code="SYS002",
        cause="system.sampling-with-gradients",
        title="Sampling with gradients",
        what="Gradients are not switched off while samples are drawn.",
        why="Memory grows with every step of the sampler, for nothing.",
        alike="",
        misses="",
        fix="torch.no_grad() or torch.inference_mode() around the sampler.",
        severity="warning",
        look=look_gradients,
    ),
)
