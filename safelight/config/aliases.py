"""What other trainers call a setting: the flags of diffusers, kohya, lucidrains, Lightning and ultralytics."""

from __future__ import annotations

# Flags with a value, by the setting they stand for. `run` is the run folder.
NAMES: dict[str, tuple[str, ...]] = {
    "run": ("output_dir", "results_folder", "save_dir", "default_root_dir", "out_dir", "outdir"),
    "data.source": ("train_data_dir", "data_dir", "dataset", "dataset_name", "data_path", "image_dir", "image_folder",
                    "train_dir"),
    "data.image_size": ("resolution", "imgsz", "img_size"),
    "data.workers": ("num_workers", "dataloader_num_workers", "max_data_loader_n_workers"),
    "data.cache": ("cache_dir",),
    "model.init": ("pretrained_model_name_or_path", "pretrained"),
    "model.dropout": ("dropout",),
    "diffusion.prediction": ("prediction_type",),
    "diffusion.timesteps": ("timesteps", "ddpm_num_steps", "num_train_timesteps"),
    "optimizer.schedule": ("lr_scheduler", "lr_scheduler_type", "scheduler", "lr_schedule"),
    "diffusion.schedule": ("beta_schedule", "ddpm_beta_schedule", "noise_schedule"),
    "diffusion.min_snr_gamma": ("snr_gamma", "min_snr_gamma"),
    "diffusion.loss": ("loss_type",),
    "diffusion.huber_delta": ("huber_c",),
    "optimizer.lr": ("learning_rate", "train_lr", "lr0", "unet_lr"),
    "optimizer.floor": ("lrf",),
    "optimizer.warmup": ("lr_warmup_steps", "warmup_steps", "num_warmup_steps"),
    "optimizer.weight_decay": ("weight_decay", "adam_weight_decay"),
    "optimizer.beta1": ("adam_beta1", "beta1"),
    "optimizer.beta2": ("adam_beta2", "beta2"),
    "optimizer.eps": ("adam_epsilon",),
    "clipping.limit": ("max_grad_norm", "gradient_clip_val", "grad_clip", "clip_grad", "clip_grad_norm"),
    "ema.decay": ("ema_decay", "ema_max_decay"),
    "train.epochs": ("num_train_epochs", "max_train_epochs", "num_epochs", "max_epochs"),
    "train.steps": ("max_train_steps", "max_steps", "train_num_steps", "num_steps", "total_steps", "iterations"),
    "train.batch_size": ("train_batch_size", "batch", "per_device_train_batch_size"),
    "train.precision": ("mixed_precision", "precision"),
    "checkpoint.every": ("checkpointing_steps", "save_steps", "save_every_n_steps", "save_and_sample_every"),
    "checkpoint.keep_last": ("checkpoints_total_limit", "save_total_limit", "save_top_k"),
    "sample.every": ("validation_steps", "sample_every_n_steps"),
    "sample.count": ("num_samples", "eval_batch_size", "num_validation_images"),
    "sample.steps": ("num_inference_steps", "ddpm_num_inference_steps", "sampling_timesteps"),
    "sample.guidance": ("guidance_scale", "cfg_scale"),
    "log.to": ("report_to", "log_with", "logger"),
}  # fmt: skip

# Intervals that are counted in epochs there.
IN_EPOCHS: dict[str, tuple[str, ...]] = {
    "checkpoint.every": ("save_period", "save_every_n_epochs", "save_model_epochs", "check_val_every_n_epoch"),
    "sample.every": ("save_images_epochs", "sample_every_n_epochs", "validation_epochs"),
}

# Switches: they take no value there.
SWITCHES: dict[str, tuple[str, str]] = {
    "gradient_checkpointing": ("model.gradient_checkpointing", "true"),
    "torch_compile": ("model.compile", "true"),
    "random_flip": ("data.flip", "true"),
    "flip_aug": ("data.flip", "true"),
    "augment_horizontal_flip": ("data.flip", "true"),
    "v_parameterization": ("diffusion.prediction", "v_prediction"),
    "zero_terminal_snr": ("diffusion.zero_terminal_snr", "true"),
    "fp16": ("train.precision", "fp16"),
    "half": ("train.precision", "fp16"),
    "bf16": ("train.precision", "bf16"),
    "class_conditional": ("model.conditional", "true"),
}

# Words of a value, by setting.
VALUES: dict[str, dict[str, str]] = {
    "train.precision": {
        "no": "fp32", "32": "fp32", "32-true": "fp32", "full": "fp32", "float32": "fp32",
        "16": "fp16", "16-mixed": "fp16", "float16": "fp16", "bf16-mixed": "bf16", "bfloat16": "bf16",
    },
    "optimizer.schedule": {
        "constant_with_warmup": "constant", "inverse_sqrt": "inverse-sqrt", "warmup_stable_decay": "wsd",
    },
    "diffusion.schedule": {"squaredcos_cap_v2": "cosine", "scaled_linear": "scaled-linear"},
    "diffusion.prediction": {"v": "v_prediction", "noise": "epsilon", "eps": "epsilon", "x0": "sample"},
    "diffusion.loss": {"mse": "l2", "mae": "l1"},
    "log.to": {"all": "tensorboard,wandb,jsonl"},
}  # fmt: skip

# Nothing has to be done for these: the flag is left out, and the reason is printed.
ALREADY_DONE: dict[str, str] = {
    "use_ema": "EMA weights are always kept, and samples are drawn from them.",
    "ema": "EMA weights are always kept, and samples are drawn from them.",
    "center_crop": "Pictures that are not square are cropped to their centre (data.fit=crop, the default).",
    "enable_xformers_memory_efficient_attention": (
        "Attention always runs through torch's scaled_dot_product_attention, which is flash attention where the GPU "
        "has it."
    ),
    "xformers": "Attention always runs through torch's scaled_dot_product_attention.",
    "sdpa": "Attention always runs through torch's scaled_dot_product_attention.",
    "deterministic": "Nothing random has state: the same seed gives the same run.",
    "pin_memory": "Batches are always pinned before they are copied to a GPU.",
    "shuffle": "Every epoch has an order of its own.",
    "drop_last": "Batches run on across the end of an epoch, so none is smaller and none is dropped.",
    "cos_lr": "The learning rate falls as a cosine after its warmup, unless another schedule is set.",
    "local_rank": "Launchers say it in the environment.",
}

# What cannot be translated word by word: what to use instead.
INSTEAD_OF_FLAG: dict[str, str] = {
    **dict.fromkeys(
        ("gradient_accumulation_steps", "gradient_accumulate_every", "accumulate_grad_batches"),
        "--batch-size counts all images of one optimizer step here, over all micro-batches and processes: a batch of "
        "16 accumulated 4 times is --batch-size 64 --accumulate 4.",
    ),
    "prefetch_factor": "Every thread of data.workers prepares one step ahead: --workers 4 is four steps ahead.",
    "amp": "Use --precision bf16, or --precision fp16 (with a loss scale) where the GPU has no bf16.",
    **dict.fromkeys(
        ("resume_from_checkpoint", "resume", "ckpt_path", "save_state"),
        "A run is continued by its folder, exactly where it stopped: safelight resume RUN.",
    ),
    **dict.fromkeys(
        ("warmup_epochs", "lr_warmup_ratio", "warmup_ratio"),
        "The warmup is counted in steps: --set optimizer.warmup=500. Unset, it is 8 % of the run.",
    ),
    "optimizer": "The optimizer is AdamW: --lr, --set optimizer.weight_decay=… and others in section optimizer.",
    "use_8bit_adam": "There is no 8-bit optimizer; --set train.weights=divided shares its memory among processes.",
    "scale_lr": "Nothing is scaled by the number of processes. Give the learning rate of the whole batch: --lr.",
    "patience": "--set train.patience=N counts checkpoints without a lower loss, not epochs.",
    "ema_update_every": "The EMA is updated after every step; --set ema.kind=exponential and ema.decay set its length.",
    **dict.fromkeys(
        ("devices", "gpus", "num_processes", "accelerator", "strategy", "num_nodes", "multi_gpu"),
        "Choose one device with --device. For several, start the same command with accelerate launch or torchrun.",
    ),
    **dict.fromkeys(("logging_dir", "log_dir"), "Loggers write into the run folder: --run DIR, --loggers tensorboard."),
    **dict.fromkeys(("project", "name"), "A run is one folder: --run runs/NAME."),
    **dict.fromkeys(
        ("push_to_hub", "hub_token", "hub_model_id"),
        "Nothing is uploaded. `safelight export RUN -o pipeline` writes a folder that diffusers loads and can upload.",
    ),
    "temperature": "A flag of drawing: safelight sample RUN --temperature 0.9, and Run.sample(temperature=0.9).",
    "eta": "A flag of drawing: safelight sample RUN --sampler ddim --eta 0.5, and Run.sample(eta=0.5).",
    "color_aug": "--set data.jitter=0.1 changes brightness, contrast and saturation at random.",
    "early_stopping": "--set train.patience=N ends a run after N checkpoints without a lower loss.",
}


def setting_of(name: str) -> str | None:
    """The setting that a name of another trainer stands for, or None. `learning_rate` -> `optimizer.lr`."""
    if name in SWITCHES:
        return SWITCHES[name][0]
    tables = (NAMES, IN_EPOCHS)
    return next((key for table in tables for key, names in table.items() if name in names), None)


def value_of(name: str, key: str, word: str) -> str:
    """The value in our words: `no` -> `fp32`; epochs get their unit."""
    if name in IN_EPOCHS.get(key, ()):
        return f"{word}ep"
    return VALUES.get(key, {}).get(word.lower(), word)


def advice_on(name: str) -> str | None:
    """In words, what to use instead of an argument that Safelight does not have."""
    from safelight.config.presets import FLAGS

    key = setting_of(name)
    if key is None:
        return INSTEAD_OF_FLAG.get(name) or ALREADY_DONE.get(name)
    short = next((flag for flag, target in FLAGS.items() if target == key), None)
    return f"It is {short or key!r} here." if short or key == "run" else f"It is the setting {key!r} here."
