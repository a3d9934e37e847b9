"""safelight train"""

from __future__ import annotations

from dataclasses import dataclass

from safelight.cli.flags import options


@dataclass(frozen=True, kw_only=True)
class Command:
    """Train a diffusion model on a set of images, show it develop, and leave a model that diffusers loads.

    Without DATA it trains on scikit-learn's handwritten digits: minutes on a CPU.

    For example: safelight train photos/ --image-size 64 --epochs 50 --run runs/photos

    Defaults, in brackets those of digits: steps 20000 (1000), batch size 64 (128), image size 32 (8), lr 0.001 (0.002),
    seed 0, device auto, precision fp32, accumulate 1. `safelight settings` shows all of them.
    """

    data: options.Source = None
    """digits, shapes, fashion-mnist, a folder of images (subfolders are classes), a zip of one, or an idx file."""
    run: options.Folder = None
    """Run folder; must be new or empty. Without it: runs/NAME-1, runs/NAME-2, …"""
    preset: options.Preset = None
    config: options.ConfigFile = None
    set: options.Settings = ()
    """Any setting, over everything else: --set model.dropout=0.1"""
    steps: options.Steps = None
    epochs: options.Epochs = None
    batch_size: options.BatchSize = None
    image_size: options.ImageSize = None
    objective: options.Objective = None
    lr: options.Number = None
    """Peak learning rate."""
    seed: options.Number = None
    """Root of all randomness."""
    device: options.Device = None
    precision: options.Precision = None
    accumulate: options.Accumulate = None
    checkpoint_every: options.CheckpointEvery = None
    sample_every: options.SampleEvery = None
    evaluate_every: options.EvaluateEvery = None
    heal: options.Flag = False
    """Fix what can safely be fixed: see docs/heal.md."""
    workers: options.Workers = None
    loggers: options.Word = None
    """tensorboard, wandb, jsonl, or several with commas between."""
    init: options.Word = None
    """Folder of a diffusers pipeline to fine-tune."""
    notify: options.Notify = None
    no_dashboard: options.NoDashboard = False
    force: options.Flag = False
    """Where --run is not empty: move what is there aside, as DIR-before-1. Nothing is deleted."""

    def run_command(self) -> None:
        config = options.config_from(self)
        from safelight.config.check import check

        check(config)  # before torch is imported: a wrong setting is reported at once
        options.say_loading()
        from safelight.start import train

        on_start = options.starting(self.no_dashboard, self.notify)
        options.print_once(train(config, run=self.run, on_start=on_start, force=self.force).path)
