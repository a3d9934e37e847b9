"""safelight train"""

from __future__ import annotations

from dataclasses import dataclass

from safelight.cli.options import (
    File,
    Flag,
    Folder,
    Number,
    Settings,
    Source,
    Word,
    config_from,
    dashboard_unless,
    print_once,
)


@dataclass(frozen=True, kw_only=True)
class Command:
    """Train a diffusion model on a pile of images, show it develop, and leave a model that diffusers loads.

    Without DATA it trains on scikit-learn's handwritten digits: minutes on a CPU.
    """

    data: Source = None
    """digits, shapes, fashion-mnist, a folder of images (subfolders are classes), a zip of one, or an idx file."""
    run: Folder = None
    """Run folder; must not hold a run yet. Without it: runs/NAME-1, runs/NAME-2, …"""
    preset: Word = None
    """digits, tiny, small or base."""
    config: File = None
    """YAML file of settings, over the preset."""
    set: Settings = ()
    """Any setting, over everything else: --set model.dropout=0.1"""
    steps: Number = None
    """Optimizer steps of the whole run."""
    batch_size: Number = None
    """Images per optimizer step."""
    image_size: Number = None
    """Side of the square the model sees, in pixels."""
    lr: Number = None
    """Peak learning rate."""
    seed: Number = None
    """Root of all randomness."""
    device: Word = None
    """auto, cpu, cuda, cuda:1 or mps."""
    precision: Word = None
    """fp32, bf16 or fp16."""
    accumulate: Number = None
    """Micro-batches per step, or auto."""
    checkpoint_every: Number = None
    """Steps between checkpoints."""
    sample_every: Number = None
    """Steps between pictures."""
    evaluate_every: Number = None
    """Steps between evaluations of samples; 0: none."""
    heal: Flag = False
    """Mend what can safely be mended: see docs/heal.md."""
    workers: Number = None
    """Threads that prepare batches ahead."""
    loggers: Word = None
    """tensorboard, wandb, jsonl, or several with commas between."""
    init: Word = None
    """Folder of a diffusers pipeline to fine-tune."""
    no_dashboard: Flag = False
    """Do not start the dashboard; without a terminal it is not started anyway."""

    def run_command(self) -> None:
        config = config_from(self)
        from safelight.config.check import check

        check(config)  # before torch is imported: a wrong setting is told at once
        from safelight.start import train

        print_once(train(config, run=self.run, on_start=dashboard_unless(self.no_dashboard)).path)
