"""Configs that cannot work: refused or warned about before anything starts."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from safelight.config.effect import without_effect
from safelight.config.resolve import flatten, to_dict, types_of_fields
from safelight.config.tree import COMPONENTS, Clipping, Config, Model, ProcessName, Sampler
from safelight.errors import UsageError
from safelight.words import printable

# Relative widths of a power-function EMA: from the last few steps to nearly the plain mean of the run (0.2887).
MIN_EMA_WIDTH, MAX_EMA_WIDTH = 0.001, 0.28

# Random initialisation that is left in the EMA at the end of a run: warned about, and refused.
WARNED_INITIAL_SHARE, REFUSED_INITIAL_SHARE = 0.02, 0.5

RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "positive": (lambda value: value > 0, "be greater than 0"),
    "not negative": (lambda value: value >= 0, "not be negative"),
    "share": (lambda value: 0 <= value <= 1, "lie between 0 and 1"),
}
# Larger values are typing errors, and would take memory, threads or files without end. None of them is measured: each
# is far above what anybody trains with.
MAX_NUMBER = 10**12
MAX_OF_SETTING: dict[str, float] = {
    "data.image_size": 16_384, "data.classes": 10**6, "data.workers": 1024, "data.scan_workers": 1024,
    "data.max_pixels": 2**31 - 1, "data.max_megabytes": 1e6, "data.max_seconds": 1e6, "data.max_memory": 1e7,
    "model.layers": 64, "model.head_width": 65_536, "model.norm_groups": 65_536,
    "diffusion.timesteps": 10**6, "diffusion.sigma_data": 1e6, "diffusion.huber_delta": 1e6,
    "diffusion.density_mean": 100.0, "diffusion.density_std": 100.0, "diffusion.shift": 1e6,
    "optimizer.lr": 1e300,  # the guard against non-finite updates has the answer, however large it is
    "ema.snapshots": 10_000,
    "train.epochs": 1e6, "train.batch_size": 10**6, "train.accumulate": 10**6, "train.shards": 10**6,
    "train.timeout": 1e6, "train.grace": 1e6, "train.threads": 1024, "train.seed": 2**64 - 1,
    "sample.count": 10_000, "sample.steps": 10**5, "sample.guidance": 1e6,
    "evaluate.samples": 10**6, "evaluate.references": 10**7, "evaluate.components": 10**5,
}  # fmt: skip
MOST_LEVELS, WIDEST_LEVEL = 12, 65_536
LONGEST_WORD = 4096  # as long as a path may be
BELOW_ONE = ["optimizer.beta1", "optimizer.beta2"]

COLOURS = {"white": (255, 255, 255), "black": (0, 0, 0), "grey": (128, 128, 128)}
DIMENSIONS = {"lite0": 1280, "inception": 2048}
SAMPLES_PER_COMPONENT = 4  # below that the error bars of a distance do not hold (bench/results/calibration.md)
SAMPLERS: dict[ProcessName, tuple[Sampler, ...]] = {
    "vp": ("ddim", "ddpm", "dpm-solver++"),
    "flow": ("euler", "heun", "dpm-solver++"),
    "edm": ("euler", "heun", "dpm-solver++"),
}
LARGEST_MARGIN = 1.0  # of data.random_crop: at that, a window shows a quarter of the picture


def check(config: Config) -> list[str]:
    """Raises UsageError at the first thing that cannot work; returns warnings about what probably will not."""
    for problem in _problems(config):
        raise UsageError(problem)
    return list(_warnings(config))


def check_ranges(config: Config) -> None:
    """As `check`, for commands that train nothing: whether the parts fit together does not matter to them."""
    for problem in _out_of_range(config):
        raise UsageError(problem)


def keys_in_range(name: str) -> list[str]:
    """The settings that the tree gives this range to."""
    hints = types_of_fields(ranges=True)
    return [key for key, hint in hints.items() if name in getattr(hint, "__metadata__", ())]


def _problems(config: Config) -> Iterator[str]:
    yield from _out_of_range(config)
    if config.model.init is None:  # else the U-Net is what it is, whatever the other settings of the model say
        yield from model_problems(config.model, config.data.image_size, config.data.classes)
    yield from _bad_training(config)
    yield from _bad_process(config)
    if initial_share(config) > REFUSED_INITIAL_SHARE:
        yield _too_long(config)
    allowed = f"between {MIN_EMA_WIDTH} and {MAX_EMA_WIDTH}"
    if config.ema.kind == "power" and not MIN_EMA_WIDTH <= config.ema.width <= MAX_EMA_WIDTH:
        yield f"ema.width is {config.ema.width}; a relative width lies {allowed}. The default is 0.1."
    widths = config.ema.profiles
    if not all(MIN_EMA_WIDTH <= width <= MAX_EMA_WIDTH for width in widths) or widths[0] == widths[1]:
        yield f"ema.profiles are {widths}; they must be two different widths {allowed}."


def _bad_process(config: Config) -> Iterator[str]:
    diffusion, sampler = config.diffusion, config.sample.sampler
    if diffusion.prediction == "epsilon" and (diffusion.zero_terminal_snr or diffusion.process == "flow"):
        which = "diffusion.zero_terminal_snr" if diffusion.process == "vp" else "diffusion.process flow"
        yield (
            f"{which} cannot go with diffusion.prediction epsilon: at the last timestep there is "
            "no signal, so the noise says nothing about the image. Use v_prediction or sample."
        )
    if diffusion.timesteps < 2:
        yield f"diffusion.timesteps is {diffusion.timesteps}; a process needs at least 2."
    if diffusion.process == "vp" and config.sample.steps > diffusion.timesteps:
        yield (
            f"sample.steps is {config.sample.steps}, but there are only {diffusion.timesteps} timesteps. "
            f"Use at most {diffusion.timesteps}."
        )
    if problem := sampler_problem(diffusion.process, sampler):
        yield f"sample.sampler is {sampler}, {problem}"
    if diffusion.density == "log-normal" and diffusion.process != "edm":
        yield (
            f"diffusion.density log-normal is one of σ, which diffusion.process {diffusion.process} does not have. Use "
            "uniform or logit-normal."
        )
    if diffusion.process != "flow" and diffusion.shift != 1:
        yield f"diffusion.shift is {diffusion.shift:g}, but diffusion.process {diffusion.process} has none. Use 1."
    of_edm = (diffusion.process, diffusion.prediction, diffusion.weighting)
    if diffusion.sigma_data != type(diffusion)().sigma_data and "edm" not in of_edm:
        yield (
            f"diffusion.sigma_data is {diffusion.sigma_data:g}, but neither process, prediction nor weighting is edm, "
            "which alone has one. Leave it out."
        )
    if diffusion.process != "vp" and diffusion.zero_terminal_snr:
        yield f"diffusion.zero_terminal_snr is for diffusion.process vp, but it is {diffusion.process}. Leave it out."


def sampler_problem(process: ProcessName, sampler: Sampler) -> str:
    """Why they cannot go together: the end of a sentence, or nothing."""
    samplers = SAMPLERS[process]
    return (
        ""
        if sampler in samplers
        else f"but a process of kind {process} has {', '.join(samplers[:-1])} and {samplers[-1]}."
    )


def _out_of_range(config: Config) -> Iterator[str]:
    values = flatten(to_dict(config))
    yield from _beyond_range(values)
    for key, value in values.items():
        if isinstance(value, str) and not _can_be_a_name(value):
            yield f"{key} is {printable(value[:60])!r}, but no file or device can have such a name."
    for key in BELOW_ONE:
        if values[key] == 1:
            yield f"{key} is 1, but it must be below 1: a moment that forgets nothing would never move."
    if config.data.channels not in (None, 1, 3):
        yield f"data.channels is {config.data.channels}, but it must be 1 (grey) or 3 (colour)."
    if colour_of(config.data.background) is None:
        names = ", ".join(COLOURS)
        yield f"data.background is {config.data.background!r}, but it must be {names}, or #rrggbb such as #20a0ff."
    if config.data.random_crop > LARGEST_MARGIN:
        yield f"data.random_crop is {config.data.random_crop}, but it must be at most {LARGEST_MARGIN:g}."
    if config.data.classes is not None and config.data.classes < 0:
        yield f"data.classes is {config.data.classes}, but it must not be negative."
    if config.data.held_out == 1:
        yield "data.held_out is 1, but then no image is left to train on."
    if config.train.threads is not None and config.train.threads < 1:
        yield f"train.threads is {config.train.threads}, but it must be at least 1."


def _can_be_a_name(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word) and len(word) <= LONGEST_WORD
    except UnicodeError:  # a lone surrogate
        return False


def _beyond_range(values: Mapping[str, Any]) -> Iterator[str]:
    """The settings, by their dotted names, that lie outside of what the tree says."""
    for name, (fits, words) in RANGES.items():
        for key in keys_in_range(name):
            if values.get(key) is not None and not isinstance(values[key], str) and not fits(values[key]):
                yield f"{key} is {values[key]}, but it must {words}."
    for key, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            yield f"{key} is {value}, but it must be a finite number."
        elif isinstance(value, int | float) and abs(value) > (most := MAX_OF_SETTING.get(key, MAX_NUMBER)):
            yield f"{key} is {_brief(value)}, but it must be at most {most:,.12g}."


def _brief(number: float) -> str:
    return f"{number:g}" if abs(number) < 1e300 else "a number of hundreds of digits"


def colour_of(word: str) -> tuple[int, int, int] | None:
    """(red, green, blue), or None if the word names no colour."""
    if word in COLOURS:
        return COLOURS[word]
    if re.fullmatch("#[0-9a-fA-F]{6}", word):
        return int(word[1:3], 16), int(word[3:5], 16), int(word[5:7], 16)
    return None


def model_problems(model: Model, size: int, classes: int | None) -> Iterator[str]:
    """Why no U-Net of these settings can be built."""
    if not model.widths or min(model.widths) < 1:
        yield f"model.widths is {model.widths}; it needs at least one positive number of channels."
        return
    if len(model.widths) > MOST_LEVELS:
        yield f"model.widths has {len(model.widths)} levels, but a U-Net has at most {MOST_LEVELS}."
        return
    stride = 2 ** (len(model.widths) - 1)
    if size % stride:
        yield (
            f"data.image_size is {size}, which the U-Net's {len(model.widths)} levels cannot halve "
            f"{len(model.widths) - 1} times: it must be a multiple of {stride}. Use {_nearest_multiples(size, stride)}."
        )
    for width in model.widths:
        if model.norm_groups < 1 or width % model.norm_groups:
            yield (
                f"model.norm_groups is {model.norm_groups}, which does not divide the width {width}. "
                f"Use one of {_divisors(model)}."
            )
    if set(model.widths) == {model.norm_groups} and model.norm_groups > 1:
        yield (
            f"model.norm_groups is {model.norm_groups}, as is every width: a norm of single channels removes the "
            f"timestep, which is added to whole channels. Use one of {_divisors(model)}."
        )
    if max(model.widths) > WIDEST_LEVEL:
        yield f"model.widths is {model.widths}; a level has at most {WIDEST_LEVEL:,} channels."
    sides = [size // 2**level for level in range(len(model.widths))]
    for side in model.attention:
        if side not in sides:
            levels = ", ".join(map(str, sides))
            yield (
                f"model.attention is set to {side} px, but the U-Net's levels are {levels} px wide. "
                f"Use some of these, such as model.attention={sides[-1]}."
            )
    for side, width in zip(sides, model.widths, strict=True):
        if side in model.attention and width % model.head_width:
            yield (
                f"model.head_width is {model.head_width}, which does not divide the width {width} that has attention "
                f"at {side} px. Use a divisor of {width}."
            )
    if model.conditional and classes == 0:
        yield "model.conditional is true, but the data has no labels. Put the images of each class in a subfolder."


def _divisors(model: Model) -> str:
    common = math.gcd(*model.widths)
    divisors = [each for each in range(1, min(common, 512) + 1) if common % each == 0]
    return ", ".join(str(each) for each in divisors if each == 1 or {each} != set(model.widths))


def _nearest_multiples(number: int, factor: int) -> str:
    below = number // factor * factor
    return f"{below} or {below + factor}" if below else str(factor)


def _bad_training(config: Config) -> Iterator[str]:
    train = config.train
    if isinstance(train.accumulate, int):
        if train.accumulate < 1:
            yield f"train.accumulate is {train.accumulate}, but it must be at least 1, or auto."
        elif train.batch_size % train.accumulate:
            yield (
                f"train.batch_size is {train.batch_size}, which {train.accumulate} micro-batches cannot share "
                f"evenly. Use {_nearest_multiples(train.batch_size, train.accumulate)}."
            )
    if train.shards is not None and train.batch_size % train.shards:
        yield (
            f"train.batch_size is {train.batch_size}, which {train.shards} shards (train.shards) cannot share evenly. "
            f"Use {_nearest_multiples(train.batch_size, train.shards)}."
        )
    if train.weights == "divided":
        yield from _not_divided(config)
    if train.epochs is None and (config.optimizer.warmup or 0) >= train.steps:
        yield (
            f"optimizer.warmup is {config.optimizer.warmup} steps, but the whole run has {train.steps}: the learning "
            f"rate would never reach its peak. Use at most {max(1, train.steps // 10)}, or leave it unset."
        )
    yield from clipping_problems(config.clipping)


def clipping_problems(clipping: Clipping) -> Iterator[str]:
    """Numbers that cannot be, also those of a clipper in a user's loop."""
    yield from _beyond_range({f"clipping.{name}": value for name, value in asdict(clipping).items()})
    if clipping.lowest > clipping.highest:
        yield f"clipping.lowest is {clipping.lowest}, above clipping.highest, {clipping.highest}."
    elif clipping.initial is not None and not clipping.lowest <= clipping.initial <= clipping.highest:
        yield (
            f"clipping.initial is {clipping.initial}, but it must lie between clipping.lowest, {clipping.lowest}, and "
            f"clipping.highest, {clipping.highest}."
        )


def _not_divided(config: Config) -> Iterator[str]:
    """A pass of divided weights takes all processes, and each sees but some rows of them."""
    train, model, cannot = config.train, config.model, "train.weights cannot be divided"
    if train.shards is not None:
        yield f"{cannot} in exact mode (train.shards is {train.shards}). Leave one of the two out."
    if train.accumulate == "auto":
        yield f"{cannot} while train.accumulate is auto: a try that fails would leave the others waiting. Use a number."
    if config.heal.enabled:
        yield f"{cannot} with heal.enabled: a step that is made again takes all processes. Leave one of the two out."
    for name in ("spectral_norm", "compile", "channels_last"):
        if getattr(model, name):
            yield f"{cannot} with model.{name}. Leave one of the two out."


def _few_samples(config: Config) -> Iterator[str]:
    evaluate = config.evaluate
    axes = COMPONENTS[evaluate.features] if evaluate.components is None else evaluate.components
    dimensions = axes or DIMENSIONS[evaluate.features]
    wanted = SAMPLES_PER_COMPONENT * dimensions
    if evaluate.every != 0 and evaluate.samples < wanted:
        yield (
            f"evaluate.samples is {evaluate.samples}, but a distance in {dimensions} directions (evaluate.components) "
            f"needs {wanted}: with fewer, most of it is the chance of the draw, and the best checkpoint is chosen by "
            f"the kernel distance instead. Use {wanted} samples, or {evaluate.samples // SAMPLES_PER_COMPONENT} "
            "components."
        )


def _warnings(config: Config) -> Iterator[str]:
    yield from _few_samples(config)
    yield from without_effect(config)
    if config.train.shards is not None and config.train.accumulate not in (1, "auto"):
        yield "train.accumulate has no effect together with train.shards: every shard is a micro-batch of its own."
    if initial_share(config) > WARNED_INITIAL_SHARE:
        yield _too_long(config)
    if config.model.label_drop == 0 and config.model.conditional and config.sample.guidance != 1:
        yield "sample.guidance needs a model that also saw hidden labels, but model.label_drop is 0."


def _too_long(config: Config) -> str:
    return (
        f"ema.decay {config.ema.decay} without warm-up is too long for {config.train.steps} steps: "
        f"{initial_share(config):.0%} of the EMA weights would still be random initialisation, and samples would "
        "show it. Use ema.kind power, or ema.warmup true."
    )


def initial_share(config: Config) -> float:
    """How much of the initial weights the EMA still holds after the last step."""
    if config.ema.kind == "power" or config.ema.warmup:
        return 0.0  # the warm-up leaves 0.3 % after 30 steps, and soon nothing
    if config.train.epochs is not None:
        return 0.0  # of how many steps, the number of images will say
    return config.ema.decay**config.train.steps
