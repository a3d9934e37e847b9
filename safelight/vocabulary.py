"""The words that every layer shares: signals, and the catalogue of all of them."""

from __future__ import annotations

from dataclasses import dataclass

RECENT = 64  # newest steps whose mean is shown where one number stands for a noisy signal


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing that is measured."""

    name: str  # area/quantity
    meaning: str  # one sentence: tooltip, docs and help print this
    unit: str = "1"
    family: bool = False  # one of these for each part or level: name/part


LOSS = Signal("loss/mean", "Unweighted loss of the step's batch.")
LOSS_SMOOTH = Signal("loss/smooth", "Mean of that loss over the last 64 steps.")
LOSS_DEVIATION = Signal("loss/deviation", "Standard deviation of that loss over the last 64 steps.")
LOSS_NORMALISED = Signal("loss/whitened", "Loss of each sample over the usual loss at its noise level; 1: as usual.")
LOSS_AT_LEVEL = Signal("loss/level", "Loss by noise level over 64 steps; 00: least noise, 15: most.", family=True)
TIMESTEPS_OUTSIDE = Signal("loss/outside", "Share of samples with a timestep outside the schedule, if there are any.")
LEARNING_RATE = Signal("optimizer/lr", "Learning rate as it was applied.")
GRADIENT_NORM = Signal(
    "gradient/norm", "L2 norm of all gradients, after unscaling; before our clipping, in a watched loop after its own."
)
GRADIENT_PART = Signal("gradient/part", "L2 norm of the gradients of one part of the network.", family=True)
GRADIENT_ZERO = Signal("gradient/zero", "Share of the gradients of one part that are exactly zero.", family=True)
GRADIENT_LARGEST = Signal("gradient/largest", "Largest absolute value of the gradient's numbers.")
GRADIENT_MEAN = Signal("gradient/mean", "Mean absolute value of the gradient's numbers.")
GRADIENT_SMALLEST = Signal("gradient/smallest", "Smallest absolute value of them that is not exactly zero.")
GRADIENT_NOISE = Signal(
    "gradient/noise_scale", "Batch size at which noise and signal of the gradient are equal.", "images"
)
NONFINITE_PARAMETERS = Signal("gradient/nonfinite", "Number of parameters whose gradient is not finite.")
CLIP_LIMIT = Signal("gradient/limit", "Norm that gradients were clipped to.")
CLIP_KEPT = Signal("gradient/kept", "Share of the gradient's length that clipping left; 1: it was not clipped.")
CLIPPED = Signal("gradient/clipped", "1 if the gradient was clipped.")
UPDATE_RATIO = Signal("update/ratio", "Length of the update of one part over the length of its weights.", family=True)
WEIGHT_NORM = Signal("weight/norm", "L2 norm of the weights of one part.", family=True)
REFUSED = Signal("update/refused", "1 if the update was refused because something was not finite.")
EMA_DECAY = Signal("ema/decay", "Decay of the EMA as it was applied.")
EMA_DISTANCE = Signal("ema/distance", "Distance of the EMA from the weights, over the length of the weights.")
LOSS_SCALE = Signal("precision/scale", "Factor on the loss in fp16 training; 1 in other precisions.")
FIXED_SET_LOSS_RAW = Signal("probe/raw", "Loss of the raw weights on the fixed set.")
FIXED_SET_LOSS_EMA = Signal("probe/ema", "Loss of the EMA weights on the fixed set.")
EMA_GAIN = Signal(
    "probe/ema_gain", "Loss of the raw weights above the EMA's, paired on the fixed set, in standard errors."
)
HELD_OUT_LOSS_RAW = Signal(
    "probe/held_raw", "Loss of the raw weights on held-out images, with the fixed set's noise and t."
)
HELD_OUT_LOSS_EMA = Signal(
    "probe/held_ema", "Loss of the EMA weights on held-out images, with the fixed set's noise and t."
)
HELD_OUT_GAP = Signal(
    "probe/held_gap", "Loss of held-out images above that of the fixed set, paired, in standard errors."
)
SKILL_RAW = Signal(
    "skill/raw", "Raw weights on the fixed set: 0 knows the mean image and one variance, 1 is the best linear filter."
)
SKILL_EMA = Signal("skill/ema", "The same of the EMA.")
SKILL_HELD_OUT = Signal("skill/held", "The same of the EMA on held-out images.")
SKILL_FLOOR = Signal(
    "skill/floor", "Way of the raw weights from the linear filter (0) to the exact denoiser of the training set (1)."
)
SKILL_EXACT = Signal("skill/exact", "Skill of the exact denoiser of the training set on the fixed set: the floor.")
SKILL_HELD_EXACT = Signal(
    "skill/held_exact", "Skill of that denoiser on held-out images: a model that generalises is above it."
)
SKILL_AT_LEVEL = Signal(
    "skill/level", "Skill of the EMA by noise level, of the raw weights without one; 00: least noise.", family=True
)
DISTANCE = Signal(
    "quality/distance", "Fréchet distance of samples from real images, as FID is computed: all features, no correction."
)
DISTANCE_ERROR = Signal("quality/distance_error", "Standard error of that distance.")
REAL_DISTANCE = Signal("quality/real_distance", "The same distance of as many other real images: the lowest to expect.")
TARGET_DISTANCE = Signal("quality/target_distance", "The distance that is aimed at: evaluate.target.")
UNBIASED = Signal(
    "quality/unbiased", "Fréchet distance along the main axes, bias removed: what the best checkpoint is chosen by."
)
UNBIASED_ERROR = Signal("quality/unbiased_error", "Standard error of the distance without bias.")
KERNEL = Signal("quality/kernel", "Kernel distance (KID) of samples from real images.")
KERNEL_ERROR = Signal("quality/kernel_error", "Standard error of the kernel distance.")
GAUSSIAN_DISTANCE = Signal(
    "quality/gaussian_distance",
    "Distance without bias of Gaussian images with the mean and covariance of the data.",
)
GAUSSIAN_KERNEL = Signal("quality/gaussian_kernel", "Kernel distance of these Gaussian images from real ones.")
PRECISION = Signal("quality/precision", "Share of samples that lie where real images are.")
RECALL = Signal("quality/recall", "Share of real images that lie where samples are.")
DENSITY = Signal("quality/density", "How densely samples lie among real images; about 1 for real ones.")
COVERAGE = Signal("quality/coverage", "Share of real images with a sample nearby.")
VARIETY = Signal("diversity/variance", "Variance of the samples over that of real images.")
APARTNESS = Signal("diversity/distance", "Mean distance between two samples over that between two real images.")
VENDI = Signal("diversity/vendi", "Effective number of different samples over that of real images.")
MODES = Signal("diversity/modes", "Share of the kinds of real images that samples visit.")
LARGEST_MODE = Signal("diversity/largest_mode", "Share of samples in the kind that is most frequent among them.")
DIFFERENT_MODES = Signal("diversity/different_modes", "Kinds of images clearly too frequent or too rare.")
COPIES = Signal("copies/share", "Share of samples much nearer to one training image than to any other.")
COPIES_CHANCE = Signal("copies/chance", "Chance that real images would have as many copies.")
CHECK = Signal("check", "Reading of a probe, such as an identity that holds in every healthy run.", family=True)
EVALUATION = Signal("speed/evaluation", "Share of the time that evaluations took so far.")
EPOCH = Signal("epoch/done", "Passes over the training images that are done, at the end of each.")
EPOCH_LOSS = Signal("epoch/loss", "Mean loss of the steps of the pass that ended.")
SPEED = Signal("speed/images", "Images trained on per second, pictures and checkpoints left out.", "images/s")
DATA_WAIT = Signal("speed/data_wait", "Share of the step spent waiting for its batch.")
TIME_LEFT = Signal(
    "speed/left", "Time left at the present speed, with the pictures and evaluations still to come.", "s"
)
DRIFT = Signal("distributed/drift", "Processes whose weights are not those of the first one, bit for bit.")
SAME_NOISE = Signal("distributed/same_noise", "Processes that drew the same noise as another.")
OVERLAP = Signal("distributed/overlap", "Share of a step's samples whose image another process has in it too.")
GRADIENTS_APART = Signal("distributed/gradients", "Processes whose gradients are not the first one's, bit for bit.")
REDUCTION = Signal("distributed/reduction", "Gradient of the optimizer over the mean of those of all processes.")
DATA_APART = Signal(
    "distributed/data", "How far one process's data is from the others', over what it may.", family=True
)
SLOWEST = Signal("distributed/slowest", "Own work per step of the slowest process, over the median of all.")
WAITING = Signal("distributed/waiting", "Share of a step that processes wait for each other, the mean over them.")
PROCESS_SECONDS = Signal("distributed/seconds", "Own work per step of one process, without waiting.", "s", family=True)
MEMORY = Signal("system/memory", "Memory of the device that is taken; on a CPU, of the process.", "bytes")

SIGNALS: tuple[Signal, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Signal))


def signal_of(name: str) -> Signal | None:
    """The catalogue's entry for a recorded name; None for what somebody else recorded."""
    return next((s for s in SIGNALS if name == s.name or (s.family and name.startswith(f"{s.name}/"))), None)
