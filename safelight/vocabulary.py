"""The words that every layer shares: signals, and the catalogue of all of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing that is measured."""

    name: str  # area/quantity
    unit: str
    meaning: str  # one sentence: tooltip, docs and help print this
    family: bool = False  # one of these for each part or level: name/part


LOSS = Signal("loss/mean", "1", "Unweighted loss of the step's batch.")
LOSS_WHITENED = Signal("loss/whitened", "1", "Loss of each sample over the usual loss at its noise level; 1: as usual.")
LOSS_AT_LEVEL = Signal(
    "loss/level", "1", "Loss by noise level, 00 the least noise and 15 the most, over 64 steps.", True
)
TIMESTEPS_OUTSIDE = Signal(
    "loss/outside",
    "1",
    "Share of samples with a timestep that the schedule does not have; recorded where there are any.",
)
LEARNING_RATE = Signal("optimizer/lr", "1", "Learning rate as it was applied.")
GRADIENT_NORM = Signal("gradient/norm", "1", "L2 norm of all gradients, after unscaling and before clipping.")
GRADIENT_PART = Signal("gradient/part", "1", "L2 norm of the gradients of one part of the network.", True)
GRADIENT_ZERO = Signal("gradient/zero", "1", "Share of the gradients of one part that are exactly zero.", True)
GRADIENT_NOISE = Signal(
    "gradient/noise_scale", "images", "Batch size at which noise and signal of the gradient are equal."
)
NONFINITE_PARAMETERS = Signal("gradient/nonfinite", "1", "Parameters whose gradient holds a number that is not finite.")
CLIP_LIMIT = Signal("gradient/limit", "1", "Norm that gradients were clipped to.")
CLIP_KEPT = Signal("gradient/kept", "1", "Share of the gradient's length that clipping left; 1: it was not clipped.")
CLIPPED = Signal("gradient/clipped", "1", "1 if the gradient was clipped.")
UPDATE_RATIO = Signal("update/ratio", "1", "Length of the update of one part over the length of its weights.", True)
WEIGHT_NORM = Signal("weight/norm", "1", "L2 norm of the weights of one part.", True)
REFUSED = Signal("update/refused", "1", "1 if the update was refused because something was not finite.")
EMA_DECAY = Signal("ema/decay", "1", "Decay of the average as it was applied.")
EMA_DISTANCE = Signal("ema/distance", "1", "Distance of the average from the weights, over the length of the weights.")
LOSS_SCALE = Signal("precision/scale", "1", "Factor on the loss in fp16 training; 1 in other precisions.")
PROBE_RAW = Signal("probe/raw", "1", "Loss of the raw weights on the fixed probe set.")
PROBE_EMA = Signal("probe/ema", "1", "Loss of the averaged weights on the fixed probe set.")
HELD_RAW = Signal(
    "probe/held_raw", "1", "Loss of the raw weights on held-out images, with the probe's noise and timesteps."
)
HELD_EMA = Signal(
    "probe/held_ema", "1", "Loss of the averaged weights on held-out images, with the same noise and timesteps."
)
HELD_GAP = Signal(
    "probe/held_gap", "1", "Loss of held-out images above that of the probe's, pair by pair, in standard errors."
)
SKILL_RAW = Signal(
    "skill/raw",
    "1",
    "Raw weights on the probe set: 0 knows the mean image and one variance, 1 is the best linear filter.",
)
SKILL_EMA = Signal("skill/ema", "1", "The same of the averaged weights.")
SKILL_HELD = Signal("skill/held", "1", "The same of the averaged weights on held-out images.")
SKILL_FLOOR = Signal(
    "skill/floor", "1", "Way from the linear filter (0) to the exact denoiser of the training set (1), of raw weights."
)
SKILL_AT_LEVEL = Signal("skill/level", "1", "Skill of the averaged weights by noise level, 00 the least noise.", True)
DISTANCE = Signal(
    "quality/distance", "1", "Fréchet distance of samples from real images, freed of its bias; lower is better."
)
DISTANCE_ERROR = Signal("quality/distance_error", "1", "Standard error of that distance.")
KERNEL = Signal("quality/kernel", "1", "Kernel distance (KID) of samples from real images.")
KERNEL_ERROR = Signal("quality/kernel_error", "1", "Standard error of the kernel distance.")
PRECISION = Signal("quality/precision", "1", "Share of samples that lie where real images are.")
RECALL = Signal("quality/recall", "1", "Share of real images that lie where samples are.")
DENSITY = Signal("quality/density", "1", "How densely samples lie among real images; about 1 for real ones.")
COVERAGE = Signal("quality/coverage", "1", "Share of real images with a sample nearby.")
VARIETY = Signal("diversity/variance", "1", "Variance of the samples over that of real images.")
APARTNESS = Signal("diversity/distance", "1", "Mean distance between two samples over that between two real images.")
VENDI = Signal("diversity/vendi", "1", "Effective number of different samples over that of real images.")
MODES = Signal("diversity/modes", "1", "Share of the kinds of real images that samples visit.")
LARGEST_MODE = Signal("diversity/largest_mode", "1", "Share of samples in the kind that is most frequent among them.")
DIFFERENT_MODES = Signal("diversity/different_modes", "1", "Kinds of images clearly too frequent or too rare.")
COPIES = Signal("copies/share", "1", "Share of samples much nearer to one training image than to any other.")
COPIES_CHANCE = Signal("copies/chance", "1", "Chance that real images would have as many copies.")
CHECK = Signal(
    "check", "1", "Answer of a probe: identities that hold in every sound run, at the start and at a few steps.", True
)
EVALUATION = Signal("speed/evaluation", "1", "Share of the time that evaluations took so far.")
SPEED = Signal("speed/images", "images/s", "Images trained on per second, pictures and checkpoints left out.")
DATA_WAIT = Signal("speed/data_wait", "1", "Share of the step spent waiting for its batch.")
TIME_LEFT = Signal("speed/left", "s", "Time left at the present speed, pictures left out.")
DRIFT = Signal("distributed/drift", "1", "Processes whose weights are not those of the first one, bit for bit.")
SAME_NOISE = Signal("distributed/same_noise", "1", "Processes that drew the same noise as another.")
OVERLAP = Signal("distributed/overlap", "1", "Share of a step's samples whose image another process has in it too.")
SLOWEST = Signal("distributed/slowest", "1", "Own work per step of the slowest process, over the median of all.")
WAITING = Signal("distributed/waiting", "1", "Share of a step that processes wait for each other, the mean over them.")
PROCESS_SECONDS = Signal("distributed/seconds", "s", "Own work per step of one process, without waiting.", True)
MEMORY = Signal("system/memory", "bytes", "Memory of the device that is taken; on a CPU, of the process.")

SIGNALS: tuple[Signal, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Signal))


def signal_of(name: str) -> Signal | None:
    """The catalogue's entry for a recorded name; None for what somebody else recorded."""
    for signal in SIGNALS:
        if name == signal.name or (signal.family and name.startswith(f"{signal.name}/")):
            return signal
    return None
