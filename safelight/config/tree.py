"""The settings of a run: one tree of frozen dataclasses, the same in YAML, on the command line and in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NewType, TypeVar

ProcessName = Literal["vp", "flow", "edm"]
Schedule = Literal["cosine", "linear", "scaled-linear", "sigmoid"]
Prediction = Literal["v_prediction", "epsilon", "sample", "flow", "edm"]
Loss = Literal["l2", "l1", "huber"]
Weighting = Literal["none", "min-snr", "edm"]
Features = Literal["lite0", "inception"]
WARMUP_SHARE = 0.08  # of the run, where optimizer.warmup is unset
COMPONENTS: dict[str, int] = {"lite0": 64, "inception": 0}
"""Principal directions that the distance without bias is usually taken in; 0: all."""
RateSchedule = Literal["cosine", "linear", "constant", "inverse-sqrt", "edm2", "wsd"]
TimestepSampling = Literal["stratified", "uniform"]
TimeDensity = Literal["uniform", "logit-normal", "log-normal"]
Precision = Literal["fp32", "bf16", "fp16", "auto"]
Sampler = Literal["ddim", "ddpm", "dpm-solver++", "euler", "heun"]

Epochs = NewType("Epochs", str)  # an interval such as `5ep`; steps as soon as the number of images is known

T = TypeVar("T")
# The range of a setting, checked by `check`. An unset value has none.
Positive = Annotated[T, "positive"]
NotNegative = Annotated[T, "not negative"]
Share = Annotated[T, "share"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """Which images, and how they are prepared."""

    source: str = "digits"
    """`digits`, `shapes`, `fashion-mnist`, an idx file, a folder of images (subfolders are classes), a zip of one, or a
    dataset saved by HF `datasets`."""
    image_size: Positive[int] = 32
    """Side of the square the model sees, in pixels."""
    channels: int | None = None
    """1 for grey, 3 for colour; unset: as the source is."""
    classes: int | None = None
    """Number of labels; unset: as the source has. Filled in when a run starts."""
    fit: Literal["crop", "pad"] = "crop"
    """How a picture becomes square: `crop` keeps its centre, `pad` adds bars. It is never squashed."""
    filter: Literal["bicubic", "lanczos"] = "bicubic"
    """Filter for the last factor of two to four, after whole boxes of pixels are averaged. `lanczos` is sharper and
    rings at hard edges."""
    background: str = "white"
    """Colour behind transparent pixels and in the bars of `pad`: `white`, `black`, `grey` or `#rrggbb`."""
    flip: bool = False
    """Mirror half of the images, chosen anew in every epoch. Wrong for text and digits, good for most photographs."""
    random_crop: NotNegative[float] = 0.0
    """Images are kept larger by this share, and every epoch cuts a window at random; 0: always the same view."""
    jitter: Share[float] = 0.0
    """Largest random change of brightness, contrast and saturation, as a share. The model learns these colours."""
    balance: bool = False
    """Draw every class equally often, however many images it has."""
    held_out: Share[float | None] = None
    """Share of the images kept out of training, chosen by content: copies of one picture stay together. They show
    whether the model generalises. Unset: 5 % of sets of 400 images and more; 0: train on all."""
    workers: NotNegative[int | None] = None
    """Threads that prepare batches, one step ahead per thread; 0 prepares each one when it is needed. Unset: 0 on a
    CPU, where they would take its cores, and 2 with a GPU."""
    cache: str | None = None
    """Folder of prepared images; unset: $SAFELIGHT_CACHE, or safelight in the user's cache folder."""
    scan_workers: Positive[int | None] = None
    """Processes that decode new files; unset: one per core."""
    max_bad: Share[float] = 0.1
    """Largest share of unreadable files that training may start with."""
    max_pixels: Positive[int] = 64_000_000
    """A file with more pixels is not decoded."""
    max_megabytes: Positive[float] = 200.0
    """A larger file is not opened."""
    max_seconds: Positive[float] = 30.0
    """Longest time for decoding one file, in seconds."""
    max_memory: Positive[float] = 2000.0
    """Largest memory for decoding one file, in megabytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """The U-Net."""

    widths: tuple[int, ...] = (64, 96, 128)
    """Channels of each level; every level but the last halves the image."""
    layers: Positive[int] = 1
    """Residual blocks per level."""
    attention: tuple[int, ...] = (8,)
    """Feature-map sides, in pixels, that get self-attention."""
    head_width: Positive[int] = 32
    """Channels per attention head."""
    norm_groups: Positive[int] = 32
    """Groups of every group normalisation; must divide all widths, and not be all of them."""
    dropout: Share[float] = 0.0
    """Share of activations dropped inside residual blocks."""
    conditional: bool = False
    """Learn the labels of the data, so that samples of one class can be drawn."""
    label_drop: Share[float] = 0.1
    """Share of samples whose label is hidden while training, which makes guidance possible."""
    zero_output: bool = True
    """Start with a zero output layer: the first prediction is zero and the first gradient has a normal size."""
    spectral_norm: bool = False
    """Bound the spectral norm of every convolution and linear layer inside the blocks."""
    gradient_checkpointing: bool = False
    """Recompute every block in the backward pass: less memory, about a third more time."""
    compile: bool = False
    """Run the model through torch.compile: faster on GPUs, the first step takes minutes, and resume is no longer
    promised to be exact."""
    compile_mode: Literal["default", "reduce-overhead", "max-autotune"] = "default"
    """Mode of torch.compile."""
    initialisation: Literal["default", "xavier", "kaiming"] = "default"
    """Initialisation of convolutions and linear layers: `default` of PyTorch, `xavier` or `kaiming` (uniform, biases
    0)."""
    channels_last: bool = False
    """Lay images out pixel by pixel, all channels together: faster convolutions on most GPUs."""
    init: str | None = None
    """Folder of a diffusers pipeline or U-Net (safetensors) to start from instead of random weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Diffusion:
    """The diffusion process: how noise is added, and what is predicted."""

    process: ProcessName = "vp"
    """`vp`: discrete timesteps of a noise schedule; `flow`: straight from image to noise; `edm`: noise of a growing σ.
    `--objective` sets it together with the settings that belong to it."""
    schedule: Schedule = "cosine"
    """`vp`: how the noise grows over the timesteps."""
    timesteps: Positive[int] = 1000
    """`vp`: number of noise levels; schedules are rescaled to it."""
    zero_terminal_snr: bool = False
    """`vp`: make the last timestep pure noise, so that very dark and very bright images can be learnt."""
    prediction: Prediction = "v_prediction"
    """What the model predicts: the velocity of `vp`, the noise, the clean image, the velocity of a flow, or what EDM's
    preconditioned network does. Each works with each process."""
    sigma_data: Positive[float] = 0.5
    """Standard deviation of the images that `edm` assumes, as a process, a prediction and a weighting."""
    loss: Loss = "l2"
    """Distance between prediction and target, kept per sample."""
    huber_delta: Positive[float] = 0.1
    """Error at which the Huber loss turns from quadratic to linear."""
    weighting: Weighting = "none"
    """Weight of each noise level in the loss."""
    min_snr_gamma: Positive[float] = 5.0
    """Signal-to-noise ratio above which `min-snr` stops adding weight."""
    timestep_sampling: TimestepSampling = "stratified"
    """How times are drawn from their density: `stratified` spreads each batch evenly over it."""
    density: TimeDensity = "uniform"
    """Which times are trained on most: `uniform` (over σ of `edm`, in its logarithm), `logit-normal` (the middle), or
    `log-normal` (σ of `edm`)."""
    density_mean: float | None = None
    """Mean of the normal of `density`; unset: 0 of `logit-normal`, −1.2 of `log-normal`."""
    density_std: Positive[float | None] = None
    """Its standard deviation; unset: 1 of `logit-normal`, 1.2 of `log-normal`."""
    shift: Positive[float] = 1.0
    """`flow`: above 1, more noise in training and in sampling, for large images; 1: none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimizer:
    """AdamW and its learning rate: linear warmup, then a schedule."""

    lr: Positive[float] = 1e-3
    """Peak learning rate."""
    beta1: Share[float] = 0.9
    """Decay of the running mean of the gradient."""
    beta2: Share[float] = 0.99
    """Decay of the running mean of the squared gradient."""
    eps: Positive[float] = 1e-8
    """Added to the denominator of the update."""
    weight_decay: NotNegative[float] = 0.01
    """Decay of weight matrices and convolutions; biases, norms and embeddings have none."""
    warmup: NotNegative[int | None] = None
    """Steps of linear warmup; unset: 8 % of the run, at most 5,000."""
    schedule: RateSchedule = "cosine"
    """After the warmup: `cosine` or `linear` down to the floor, `constant`, `inverse-sqrt` (falls with the root of the
    step), `edm2` (constant, then with the root), or `wsd` (constant, then linearly to zero)."""
    floor: Share[float] = 0.05
    """`cosine` and `linear`: learning rate at the last step, as a share of the peak."""
    reference: Positive[int | None] = None
    """`edm2`: steps of the constant rate; unset: a tenth of the run."""
    decay: Share[float] = 0.2
    """`wsd`: share of the run, at its end, in which the rate falls to zero."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clipping:
    """The limit on the gradient norm."""

    kind: Literal["fixed", "adaptive", "none"] = "fixed"
    """`fixed` limit, `adaptive` limit that follows the running norm, or `none`."""
    limit: Positive[float] = 1.0
    """Norm limit of `fixed`."""
    factor: Positive[float] = 2.0
    """`adaptive`: limit as a multiple of the running norm."""
    decay: Share[float] = 0.99
    """`adaptive`: memory of the running norm."""
    lowest: Positive[float] = 0.01
    """`adaptive`: the limit never falls below this."""
    highest: Positive[float] = 10.0
    """`adaptive`: the limit never rises above this."""
    initial: Positive[float | None] = None
    """`adaptive`: the limit of the first step, before any norm is known; unset: `highest`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ema:
    """The EMA weights that samples are drawn from."""

    kind: Literal["power", "exponential"] = "power"
    """`power`: a fixed share of the run so far; `exponential`: the textbook EMA with a fixed decay."""
    width: float = 0.1
    """`power`: relative width of the EMA; 0.1 covers about the last quarter of the run."""
    decay: Share[float] = 0.9999
    """`exponential`: decay once warmed up."""
    warmup: bool = True
    """`exponential`: start with a short EMA that grows, so that the initial weights do not dominate a short run."""
    profiles: tuple[float, float] = (0.05, 0.1)
    """Relative widths of two EMAs. From their snapshots any other width can be rebuilt after training."""
    snapshots: NotNegative[int] = 16
    """Snapshots of the two profiles over the run; 0: none are kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Train:
    """Length of the run, batch, device, precision and processes."""

    steps: Positive[int] = 20_000
    """Optimizer steps of the whole run."""
    epochs: Positive[float | None] = None
    """Length in passes over the training images, instead of `train.steps`; converted to steps when the run starts."""
    batch_size: Positive[int] = 64
    """Images per optimizer step over all processes and micro-batches."""
    accumulate: int | Literal["auto"] = 1
    """Micro-batches per step; `auto` finds the smallest number that fits into memory."""
    shards: Positive[int | None] = None
    """Exact mode: the batch is cut into this many parts. Their gradients are added in a fixed order, so any number of
    processes that divides this number gives the same bytes. Unset: added in the fastest order."""
    weights: Literal["whole", "divided"] = "whole"
    """`divided`: every process holds only its part of the weights, gradients, moments and EMA, and gathers one
    block at a time. For models that do not fit; takes more traffic between the processes."""
    timeout: Positive[float] = 120.0
    """Seconds without a heartbeat, or in the same step, after which the other processes stop waiting for a process."""
    grace: Positive[float | None] = None
    """Seconds from a stop signal to the kill, within which the run has to save. Unset: under torchrun
    `TORCH_ELASTIC_SHUTDOWN_TIMEOUT` or 30, after which it kills, and otherwise as many as it takes."""
    precision: Precision = "fp32"
    """Arithmetic of the model's forward and backward pass. Weights, EMA, noise and samples are always fp32. `auto`:
    bf16 where the device has instructions for it and, on a CPU, a few timed passes show that it is faster; config.yaml
    has what was chosen, and a resume keeps it."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`, `mps`."""
    threads: int | None = None
    """CPU threads; unset: torch's choice, recorded. Another number changes the bytes."""
    seed: NotNegative[int] = 0
    """Root of all randomness."""
    max_refused: Positive[int] = 8
    """Non-finite updates in a row after which the run stops."""
    patience: Positive[int | None] = None
    """Checkpoints without a lower loss of the EMA, on held-out images or else on the fixed set, after which the run
    ends; unset: it continues to its last step. A resume with more, or `none`, continues as if it had never ended."""
    preflight: Literal["stop", "tell", "off"] = "stop"
    """Before the first step, everything is tried and restored. `stop`: an error stops the run with exit code 3;
    `tell`: it is only reported; `off`: nothing is tried."""
    probe_budget: Share[float] = 0.03
    """Share of the steps' time that replays and searches of the live diagnosis may take, counted in passes of the
    network; beside it they may take 18 steps in all, so that the first ones are looked at whatever that costs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """When the whole state is saved, and what is kept."""

    every: Positive[int | Epochs | None] = None
    """Steps between checkpoints, or epochs such as `5ep`; unset: a twentieth of the run, at most 1,000."""
    keep_last: Positive[int] = 2
    """Newest checkpoints that are kept."""
    keep_every: NotNegative[int] = 0
    """Also keep every checkpoint whose step is a multiple of this; 0: none."""
    keep_best: bool = True
    """Also keep the best checkpoint: by evaluation, or without one by the lowest loss of the fixed set."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """The pictures drawn while training, always from the same noise."""

    every: NotNegative[int | Epochs | None] = None
    """Steps between pictures, or epochs such as `1ep`; 0: none but those that are evaluated; unset: up to
    20 in all, as far as the budget allows, closer together at the start, when most changes."""
    budget: Share[float] = 0.15
    """Share of the steps' time that pictures may take if `every` is unset, counted in passes of the network. A run has
    at least four of them, one that is shorter than four take has two."""
    count: Positive[int] = 64
    """Images in the grid."""
    sampler: Sampler = "dpm-solver++"
    """`ddim` or `ddpm` (`vp`), `euler` or `heun` (`flow` and `edm`), or `dpm-solver++`."""
    steps: Positive[int] = 15
    """Denoising steps per image."""
    guidance: NotNegative[float] = 1.0
    """Classifier-free guidance of conditional models; 1: none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluate:
    """How samples are measured while training."""

    every: NotNegative[int | Epochs | None] = None
    """Steps between evaluations, or epochs such as `2ep`; 0: none; unset: four in all, as far as the budget
    allows, more at the start."""
    budget: Share[float] = 0.05
    """Share of the training time that evaluations may take if `every` is unset."""
    samples: Positive[int] = 256
    """Images drawn for each evaluation, always from the same noise. The picture shows the first of them."""
    references: Positive[int] = 2048
    """Training images that samples are compared with."""
    features: Features = "lite0"
    """Network whose features are compared: `lite0` (EfficientNet-Lite0) or `inception`."""
    components: NotNegative[int | None] = None
    """Principal directions of the real features used for the distance without bias, which chooses the best checkpoint;
    0: all of them; unset: 64 of `lite0`, all of `inception`. The headline always uses all, as FID is defined."""
    target: Positive[float | None] = None
    """Distance that is aimed at, in the number of the headline (FID, FD-lite0): a line in its chart, and the step at
    which it was reached; unset: none."""
    significance: Positive[Share[float]] = 0.05
    """How often an equally good checkpoint may be called better by chance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Heal:
    """What may be fixed automatically during a run. Every act is in its journal."""

    enabled: bool = False
    """Redo steps that failed by accident, leave out bad images, go back and lower the learning rate after a divergence,
    change from fp16 to bf16 if it keeps overflowing, split batches that do not fit into memory. A healthy run ends with
    the same bytes."""
    budget: Positive[int] = 5
    """Acts in one run. A run that needs more stops."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """Loggers that receive what was measured, in addition to the record of the run."""

    to: tuple[Literal["tensorboard", "wandb", "jsonl"], ...] = ()
    """Any of `tensorboard`, `wandb` (Weights & Biases) and `jsonl`. If one fails, the training continues."""
    project: str = "safelight"
    """Project of Weights & Biases, unless WANDB_PROJECT is set."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Everything a run needs to know."""

    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    diffusion: Diffusion = field(default_factory=Diffusion)
    optimizer: Optimizer = field(default_factory=Optimizer)
    clipping: Clipping = field(default_factory=Clipping)
    ema: Ema = field(default_factory=Ema)
    train: Train = field(default_factory=Train)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    sample: Sample = field(default_factory=Sample)
    evaluate: Evaluate = field(default_factory=Evaluate)
    heal: Heal = field(default_factory=Heal)
    log: Log = field(default_factory=Log)


EFFECTIVE_ONLY_WITH: dict[str, dict[Any, tuple[str, ...]]] = {
    "model.conditional": {True: ("model.label_drop", "sample.guidance")},
    "model.compile": {True: ("model.compile_mode",)},
    "diffusion.loss": {"huber": ("diffusion.huber_delta",)},
    "diffusion.weighting": {"min-snr": ("diffusion.min_snr_gamma",)},
    "optimizer.schedule": {"edm2": ("optimizer.reference",), "wsd": ("optimizer.decay",)},
    "clipping.kind": {
        "fixed": ("clipping.limit",),
        "adaptive": tuple(f"clipping.{name}" for name in ("factor", "decay", "lowest", "highest", "initial")),
    },
    "ema.kind": {"power": ("ema.width",), "exponential": ("ema.decay", "ema.warmup")},
    "heal.enabled": {True: ("heal.budget",)},
}
"""Settings that have an effect with one value of another setting only: {choice: {value: settings}}. Setting one of them
alone makes that choice; where the choice is an on-off switch, the user is warned instead."""

OF_THE_UNET = (
    "model.widths", "model.layers", "model.attention", "model.head_width", "model.norm_groups", "model.dropout",
    "model.zero_output", "model.initialisation", "model.spectral_norm", "model.init",
)  # fmt: skip
"""Settings without effect on a model of the user's own."""
