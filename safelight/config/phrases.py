"""What the field calls a setting, and which setting a wrong name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from safelight.config.aliases import INSTEAD_OF_FLAG, setting_of
from safelight.words import plain

# Phrase: the settings it is about, the most important first. Names of other trainers' flags are in `aliases`.
WORDS: dict[str, str] = {
    "mixed precision|amp|half precision|autocast|fp16|bf16|float16|bfloat16|dtype|tf32": "train.precision",
    "gradient clipping|clip gradients|grad clip|clip grad norm|adaptive clipping|gradient norm limit":
        "clipping.kind clipping.limit clipping.factor clipping.lowest clipping.highest clipping.decay",
    "ema decay|exponential moving average|moving average|weight averaging|averaged weights|ema warmup|polyak":
        "ema.kind ema.decay ema.width ema.warmup ema.profiles ema.snapshots",
    "early stopping|stop early|patience": "train.patience",
    "learning rate|lr|step size|peak learning rate": "optimizer.lr optimizer.warmup optimizer.floor",
    "warmup|warm up|lr warmup|learning rate warmup": "optimizer.warmup ema.warmup",
    "lr schedule|lr scheduler|learning rate schedule|schedule|cosine|cosine decay|constant|linear decay|lr decay|wsd":
        "optimizer.schedule optimizer.warmup optimizer.floor diffusion.schedule",
    "weight decay|l2 regularisation|l2 regularization|regularisation|regularization":
        "optimizer.weight_decay model.dropout model.spectral_norm",
    "adam|adamw|betas|optimizer|momentum|epsilon":
        "optimizer.beta1 optimizer.beta2 optimizer.eps optimizer.weight_decay",
    "noise schedule|beta schedule|diffusion schedule|alphas cumprod":
        "diffusion.schedule diffusion.timesteps diffusion.zero_terminal_snr",
    "zero terminal snr|terminal snr|ztsnr|rescale betas zero snr": "diffusion.zero_terminal_snr",
    "timesteps|number of timesteps|noise levels|t max": "diffusion.timesteps diffusion.timestep_sampling",
    "prediction type|v prediction|epsilon prediction|objective|parameterisation|parameterization|x0 prediction":
        "diffusion.prediction",
    "loss function|mse|mae|huber loss|l1 loss|l2 loss|loss type": "diffusion.loss diffusion.huber_delta",
    "min snr|loss weighting|snr gamma|snr weighting": "diffusion.weighting diffusion.min_snr_gamma",
    "gradient accumulation|accumulation|micro batch|micro batches|effective batch size":
        "train.accumulate train.batch_size",
    "batch size|batch": "train.batch_size train.accumulate",
    "gradient checkpointing|activation checkpointing|recompute activations|memory|out of memory|oom|vram":
        "model.gradient_checkpointing train.accumulate train.precision train.weights",
    "torch compile|compile|speed|channels last|throughput":
        "model.compile model.channels_last data.workers train.precision",
    "dropout": "model.dropout",
    "channels|width|model size|capacity|number of parameters|base channels|dim mults|block out channels":
        "model.widths model.layers model.attention",
    "attention|self attention|attention resolutions|attention heads|num heads": "model.attention model.head_width",
    "group norm|normalisation layers|norm groups": "model.norm_groups",
    "spectral norm|spectral normalisation|spectral normalization": "model.spectral_norm",
    "initialisation|initialization|weight init|initial weights|xavier|kaiming|glorot|zero init|output layer":
        "model.initialisation model.zero_output model.init",
    "fine tune|finetune|fine tuning|pretrained|transfer learning": "model.init",
    "class conditioning|conditional|class labels|labels|classes":
        "model.conditional model.label_drop data.classes data.balance",
    "classifier free guidance|cfg|guidance|guidance scale|label dropout|cond drop prob":
        "sample.guidance model.label_drop model.conditional",
    "resolution|image size|img size|resize|crop": "data.image_size data.fit data.filter",
    "augmentation|data augmentation|horizontal flip|flip|mirror|random crop|colour jitter|color jitter":
        "data.flip data.random_crop data.jitter",
    "class balance|balanced sampling|imbalance|class imbalance|weighted sampler": "data.balance",
    "validation split|held out|validation set|test split|val split": "data.held_out",
    "num workers|workers|dataloader workers|prefetch|prefetch factor|data loading": "data.workers data.scan_workers",
    "cache|cache dir": "data.cache",
    "epochs|number of epochs|length of training|max steps|iterations": "train.epochs train.steps",
    "seed|random seed|reproducibility|determinism": "train.seed train.threads train.shards",
    "device|gpu|cuda|cpu|mps": "train.device",
    "multi gpu|ddp|fsdp|sharding|distributed|zero": "train.weights train.shards train.timeout train.batch_size",
    "nan|nonfinite|nan guard|skip nan steps": "train.max_refused heal.enabled",
    "checkpoint|checkpoints|save every|checkpoint interval|keep checkpoints|save top k":
        "checkpoint.every checkpoint.keep_last checkpoint.keep_every checkpoint.keep_best",
    "samples|sample grid|preview|sample images|validation images":
        "sample.every sample.count sample.sampler sample.steps",
    "sampler|ddim|ddpm|dpm solver|inference steps|sampling steps|denoising steps": "sample.sampler sample.steps",
    "fid|evaluation|evaluate|inception|kid|frechet distance|metrics":
        "evaluate.every evaluate.features evaluate.samples evaluate.components evaluate.target",
    "target fid|fid target|goal|target line|target distance": "evaluate.target",
    "tensorboard|wandb|weights and biases|logger|logging|loggers": "log.to",
    "self healing|heal|auto fix|recovery": "heal.enabled heal.budget",
}  # fmt: skip


def about(phrase: str) -> list[str]:
    """The settings that a phrase is about."""
    return [key for phrases, keys in WORDS.items() if phrase in phrases.split("|") for key in keys.split()]


def nearest_setting(key: str, keys: Collection[str]) -> str:
    """The end of a sentence: '. Did you mean …?' or a full stop. By what it says first, by its letters then."""
    leaf = key.rpartition(".")[2]
    if leaf in INSTEAD_OF_FLAG and key not in keys:
        return f". {INSTEAD_OF_FLAG[leaf]}"
    in_section = [each for each in keys if each.startswith(f"{leaf}.")]
    meant = in_section[:1] or [each for each in (setting_of(leaf),) if each in keys] or about(plain(leaf))[:1]
    if not meant:
        close = difflib.get_close_matches(leaf, {each.partition(".")[2] for each in keys}, 5, 0.6)
        alike = [each for each in keys if each.partition(".")[2] in close]
        meant = difflib.get_close_matches(key, alike, 1, 0.0) or difflib.get_close_matches(key, keys, 1, 0.8)
    return f". Did you mean {meant[0]!r}?" if meant else "."
